#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl catalogue on machine records: the list, and drop-ins of an administrator. P2PD_BUILD: the build directory."""
import json
import subprocess
import unittest

import yaml

from catalogue_case import DROP_INS, ROOT, SHIPPED, SUM, VERSION, Case
from cli_case import P2PCTL, write
from tree import MACHINES

KERNELS = yaml.safe_load((ROOT / "config/kernel-table.yaml").read_text())["releases"]


def numbers(version):
    return [int(part) for part in version.split(".")]


def shipped_entries():
    """Id to (version, how it is known, patch) of each build that the shipped tables make, in the order of the list."""
    order, found = ["single-source", "corroborated", "verified"], []
    for id_, row in SHIPPED["patches"].items():
        for version in (row["base"], *row.get("grafts", {})):
            made = SHIPPED["releases"][version]
            known = min((row["known"], made.get("known", row["known"]), made.get("runfile", row)["known"]), key=order.index)
            found.append((numbers(version), id_ if version == row["base"] else f"{id_}-on-{version}", version, known, row))
    return {id_: (version, known, row) for _, id_, version, known, row in sorted(found, key=lambda one: one[:2])}


OTHERS = "it is for machines with packages of "  # builds for other machines, which are not shown


class List(Case):
    def test_every_entry_is_there_and_nothing_changes(self):
        said, wanted = self.listed()["entries"], shipped_entries()
        self.assertEqual([entry["id"] for entry in said], list(wanted))
        for entry, (version, known, row) in zip(said, wanted.values()):
            with self.subTest(entry["id"]):
                made = SHIPPED["branches"][version.split(".")[0]] | SHIPPED["releases"][version]
                self.assertEqual((entry["driver_version"], entry["known"], entry["source"]), (version, known.replace("-", " "), "catalogue.yaml"))
                self.assertEqual((entry["base_commit"], entry["commit"], entry["cuda"]), (made.get("commit"), row.get("commit"), made.get("cuda")))
                self.assertEqual(entry["usable"], known != "single-source" and "commit" in row)
                self.assertEqual(set(entry["architectures"]), set(row["architectures"]))
        self.assert_unchanged()

    def test_reports_of_a_graft_are_of_its_patch(self):
        grafts = [entry for entry in self.entries().values() if "-on-" in entry["id"]]
        self.assertTrue(grafts)
        for entry in grafts:
            patch = SHIPPED["patches"][entry["id"].split("-on-")[0]]
            wanted = {name: how.replace("reported", "inherited") for name, how in patch["architectures"].items()}
            self.assertEqual(entry["architectures"], wanted, entry["id"])

    def test_for_people(self):
        text, said = self.ctl().stdout, self.listed()
        self.assertRegex(text, r"\A +entry +driver +CUDA +known +GPUs +kernels\n")
        for entry in said["entries"]:
            if OTHERS in entry["reason"]:
                self.assertNotIn(f" {entry['id']} ", text)
                continue
            with self.subTest(entry["id"]):
                gpus = " ".join(name + ("?" if how == "unknown" else "") for name, how in entry["architectures"].items())
                row = f"{entry['id']} {entry['driver_version']} {entry['cuda'] or ''} {entry['known']} {gpus} "
                found = next((line for line in text.splitlines() if " ".join(line.split()[1:]).startswith(" ".join(row.split()))), None)
                self.assertIsNotNone(found, row)
                self.assertIn(entry["reason"], text)
        for note in said["notes"]:
            self.assertRegex(text, rf"(?m)^ note +{note[:40]}")
        self.assertIn(said["summary"], text)

    def test_kernels_are_those_of_the_table(self):
        text = self.ctl().stdout
        for entry in self.listed()["entries"]:
            with self.subTest(entry["id"]):
                kernels = KERNELS.get(entry["driver_version"], {}).get("kernels", {})
                self.assertEqual(entry["kernels"], kernels)
                if f" {entry['id']} " not in text:  # for other machines
                    continue
                line = next(line for line in text.splitlines() if f" {entry['id']} " in line)
                parts = [[], []]
                for kernel in sorted(kernels, key=numbers):
                    parts[kernels[kernel].startswith("fails")].append(kernel)
                told = ", ".join(" ".join((word, *part)) for word, part in zip(("builds", "fails"), parts) if part)
                self.assertTrue(line.endswith(told or "not tried"), line)

    def test_defects(self):
        text = self.ctl().stdout
        for entry, (version, _, row) in zip(self.listed()["entries"], shipped_entries().values()):
            told = [{"id": name, "text": SHIPPED["defects"][name]["text"], "grave": SHIPPED["defects"][name].get("grave", False)}
                    for name in row.get("defects", []) if int(SHIPPED["defects"][name].get("from", 0)) <= numbers(version)[0]]
            self.assertEqual(entry["defects"], told, entry["id"])
            for defect in told:
                self.assertIn(f"known defect: {defect['text']}", text)

    def test_verdicts_are_the_probe_s(self):
        for record in sorted(path.parent.name for path in MACHINES.glob("*/machine.json")):
            seen = subprocess.run([P2PCTL, "doctor", "--json", "--root", str(MACHINES / record)], capture_output=True, text=True, timeout=120)
            facts = next((step["facts"] for step in json.loads(seen.stdout)["steps"] if step["check"] == "driver-catalogue"), {})
            if not facts.get("gpus"):
                continue
            with self.subTest(record):
                self.use(record)
                said = self.listed()
                self.assertEqual((said["entry"], said["notes"]), (facts["entry"], facts["notes"]))
                if all(gpu["architecture"] for gpu in facts["gpus"]) and facts["kernels"]:
                    shown = [e for e in said["entries"] if OTHERS not in e["reason"]]
                    self.assertEqual({e["id"]: e["fit"] for e in shown}, facts["entries"])
                else:
                    self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})

    def test_no_gpu_is_no_verdict(self):
        self.use("no-gpu")
        said = self.listed()
        self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})
        self.assertRegex(said["entries"][0]["reason"], "no NVIDIA GPU")
        self.assertRegex(self.ctl().stdout, "no NVIDIA GPU")


RELEASE = {"commit": "1" * 40, "known": "verified", "runfile": {"path": f"/x/NVIDIA-Linux-x86_64-{VERSION}.run", "sha256": SUM, "known": "verified"}}
PATCH = {"repository": "file:///srv/none", "branch": "x", "commit": "2" * 40, "known": "verified", "base": VERSION, "architectures": {"Ada": "unknown"}}


class DropIns(Case):
    def test_one_is_listed_and_preferred(self):
        self.put("mine.yaml", releases={VERSION: RELEASE}, patches={"mine/x": PATCH})
        said = self.listed()
        found = next(entry for entry in said["entries"] if entry["id"] == "mine/x")
        self.assertEqual((found["usable"], found["source"]), (True, f"/{DROP_INS}/mine.yaml"))
        self.assertEqual(said["entry"], "mine/x")

    def test_what_makes_an_entry_a_candidate(self):
        changes = {"commit of its patch": {"patch": {"commit": None}}, "SHA-256 of its runfile": {"runfile": {"sha256": None}},
                   "GPU architecture": {"patch": {"architectures": {}}}, "one source only": {"patch": {"known": "single-source"}},
                   "its hashes are confirmed by one source only": {"runfile": {"known": "single-source"}}}
        for reason, change in changes.items():
            with self.subTest(reason):
                def changed(row, key):
                    return {name: value for name, value in {**row, **change.get(key, {})}.items() if value is not None}
                release_row = {**RELEASE, "runfile": changed(RELEASE["runfile"], "runfile")}
                self.put("mine.yaml", releases={VERSION: release_row}, patches={"mine/x": changed(PATCH, "patch")})
                found = self.entries()["mine/x"]
                self.assertEqual((found["usable"], found["fit"]), (False, "candidate"))
                self.assertIn(reason, found["reason"])

    def test_one_of_another_name_is_not_read(self):
        for name in ("old.json", "mine.yaml.bak", "README"):
            write(self.tree / DROP_INS / name, "{")
        self.assertIn(f"/{DROP_INS}/old.json is not read", self.ctl().stdout)
        self.assertEqual(list(self.entries()), list(shipped_entries()))

    def test_bad_ones(self):
        old = json.dumps({"schema": "p2pd.catalogue/1", "entries": []})
        bad = ["", "{", b"\xff\xfe", "[]", "a", "schema: p2pd.catalogue/2\nschema: p2pd.catalogue/2\n", "schema: &a p2pd.catalogue/2\nreleases_at: *a\n",
               "schema: p2pd.catalogue/2\n---\n{}\n", "#" * (2 << 20), old]
        for content in bad:
            with self.subTest(content[:40]):
                write(self.tree / DROP_INS / "bad.yaml", content)
                done = self.ctl()
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, r"\Ap2pctl: .*/etc/p2pd/catalogue\.d/bad\.yaml")
        self.assertRegex(done.stderr, r"schema p2pd\.catalogue/1; .*\n  next: \"sudo p2pctl catalogue add")

    def test_the_same_again_is_no_contradiction(self):
        id_ = "aikitoria/565.77-p2p"
        self.put("again.yaml", releases={"565.77": SHIPPED["releases"]["565.77"]}, patches={id_: SHIPPED["patches"][id_]})
        self.assertEqual(self.entries()[id_]["source"], "catalogue.yaml")
        self.assertNotIn("which counts", self.ctl().stdout)

    def test_a_row_that_an_update_ships_too(self):
        id_, defect = "aikitoria/565.77-p2p", "bar1-smaller-than-vram"
        self.put("mine.yaml", patches={id_: {**SHIPPED["patches"][id_], "known": "single-source", "reports": ["mine"]}},
                 defects={defect: {"text": "mine"}})
        self.assertEqual([self.entries()[id_][key] for key in ("source", "usable")], ["catalogue.yaml", True])
        for row in (f"patch {id_}", f"defect {defect}"):
            self.assertRegex(self.ctl().stdout, rf"note +/{DROP_INS}/mine\.yaml: {row} is in catalogue\.yaml too, which counts")

    def test_contradictions(self):
        self.put("a.yaml", releases={VERSION: RELEASE}, patches={"mine/x": PATCH})
        rule = "pci-resize-exclude-bars"
        for what, key, earlier, tables in (
                (f"release {VERSION}", "commit", f"/{DROP_INS}/a.yaml", {"releases": {VERSION: {**RELEASE, "commit": "3" * 40}}}),
                ("patch mine/x", "commit", f"/{DROP_INS}/a.yaml", {"patches": {"mine/x": {**PATCH, "commit": "3" * 40}}}),
                ("release 565.77", "commit", "catalogue.yaml", {"releases": {"565.77": {**SHIPPED["releases"]["565.77"], "commit": "3" * 40}}}),
                (f"compat rule {rule}", "pattern", "catalogue.yaml", {"compat_rules": {rule: {**SHIPPED["compat_rules"][rule], "pattern": "x"}}})):
            with self.subTest(what):
                self.put("b.yaml", **tables)
                self.assert_refused(self.ctl(), f"{DROP_INS}/b.yaml: {what}: another '{key}' than in {earlier}", "a name of its own")


if __name__ == "__main__":
    unittest.main()
