#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What p2pctl plan does on Ubuntu 24.04 with each driver that people have there: ubuntu_drivers.txt has the outcomes.

P2PD_GOLDEN_UPDATE=1 writes that file anew.
"""
import json
import os
import pathlib
import re
import unittest

from catalogue_case import SHIPPED
from cli_case import Case

TABLE = pathlib.Path(__file__).with_name("ubuntu_drivers.txt")
# Branch to the version of its packages in Ubuntu 24.04's archive, and to the driver that these bring (2026-11-30): those of most branches
# are empty, and need the packages of another
OFFERED = {"535": ("535.309.01-0ubuntu0.24.04.2", "580.178.04"), "550": ("550.163.01-0ubuntu0.24.04.2", "580.178.04"),
           "570": ("570.211.01-0ubuntu1.24.04.1", "580.178.04"), "580": ("580.178.04-0ubuntu0.24.04.1", "580.178.04"),
           "590": ("590.48.01-0ubuntu0.24.04.5", "595.99.02"), "595": ("595.99.02-0ubuntu0.24.04.1", "595.99.02")}
UPGRADE = ["apt-get", "--simulate", "--yes", "--quiet", "-oAPT::Get::AutomaticRemove=false", "-oDPkg::Lock::Timeout=60",
           "-oDPkg::Options::=--force-confdef", "-oDPkg::Options::=--force-confold", "-oDPkg::Use-Pty=0",
           "-oDir::Etc::PreferencesParts=/dev/null", "--allow-change-held-packages", "--no-remove", "--no-install-recommends", "install"]
VERSIONS = ["535.288.01", "550.163.01", "570.133.20", "570.211.01", "580.95.05", "580.126.09", "580.142", "580.159.03", "580.173.02", "580.178.04",
            "590.48.01", "595.45.04", "595.71.05", "595.84"]
CARDS = {"RTX 4090": "ubuntu24-6.14-rtx4090-x2", "RTX 3090": "ubuntu24-rtx3090-x2", "RTX 5090": "ubuntu24-rtx5090-x2"}
GENERATION = {"RTX 4090": "Ada", "RTX 3090": "Ampere", "RTX 5090": "Blackwell"}


def patched_branches(generation):
    """Branches for which the catalogue has a patch for such cards."""
    patches = SHIPPED["patches"].values()
    return {version.split(".")[0] for patch in patches if generation in patch["architectures"] for version in (patch["base"], *patch.get("grafts", {}))}


def by_version(text):
    return [int(part) for part in text.split(".")]


class UbuntuDrivers(Case):
    def install(self, version):
        self.has_driver(version)
        self.offer(version, *OFFERED[version.split(".")[0]])

    def offer(self, version, offered, brings):
        """Records the answers of apt about the packages of the driver."""
        status = (self.tree / "var/lib/dpkg/status").read_text()
        packages = sorted(name for name, its in re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)", status, re.MULTILINE) if version in its)
        known = "".join(f"{name}:\n  Installed: {version}-0ubuntu1\n  Candidate: {f'{version}-0ubuntu1' if 'firmware' in name else offered}\n" for name in packages)
        argv = ["apt-cache", "-oDir::Etc::PreferencesParts=/dev/null", "policy", *(f"{name}:amd64" for name in packages)]
        upgrade = [*UPGRADE, *(f"{name}={offered}" for name in packages if "firmware" not in name)]
        comes = f"Inst libnvidia-compute-{brings.split('.')[0]} ({brings}-0ubuntu0.24.04.1 Ubuntu:24.04/noble-updates [amd64])\n"
        for name, argv, output in (("apt-cache-policy", argv, known), ("apt-get-simulate", upgrade, comes)):
            command = {"argv": argv, "status": 0, "output": output, "errors": ""}
            (self.tree / f"commands/{name}.json").write_text(json.dumps(command))

    def outcome(self):
        """(what plan does, the driver version after it)"""
        plan = json.loads(self.ctl("plan", "--json").stdout)
        changes = {one["step"]: one["change"] for step in plan["steps"] for one in step.get("changes", [])}
        blocked = [step["next"] for step in plan["steps"] if step["standing"] == "blocked" and step.get("next")]
        options = [step for step in ("mailbox-options", "blackwell-options") if step in changes]
        source = re.search(r"source of (\S+), patch (\S+)", changes.get("source", ""))
        if options:
            return "options alone", None
        if blocked and "driver-update" in blocked[0]:
            return "upgrade first", None
        if blocked:
            return f"asks: {blocked[0]}", None
        return f"{'purges for' if 'no-packages' in changes else 'keeps with'} {source[2]}", source[1]

    def test_outcomes(self):
        rows, purges, patched = [], 0, 0
        for card, record in CARDS.items():
            for version in VERSIONS:
                self.use(record)
                self.install(version)
                what, after = self.outcome()
                rows.append(f"{card:9} {version:11} {what}\n")
                if version.split(".")[0] in patched_branches(GENERATION[card]):
                    patched += 1
                    purges += what.startswith("purges")
                self.assertFalse(after and by_version(after) < by_version(version), rows[-1])
        text = "".join(rows)
        if os.environ.get("P2PD_GOLDEN_UPDATE"):
            TABLE.write_text(text)
        print(text, end="")
        self.assertLessEqual(4 * purges, patched)
        self.assertEqual(text, TABLE.read_text())


if __name__ == "__main__":
    unittest.main()
