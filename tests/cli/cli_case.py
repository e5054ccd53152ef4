# SPDX-License-Identifier: MIT
"""p2pctl on a copy of a machine record: helpers of the tests of the command line. P2PD_BUILD: the build directory."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from terminal import agreed  # noqa: E402
from tree import BOOT_ID, MACHINES, TESTS, boot, differences, picture, scratch_directory, write  # noqa: E402

SCHEMAS = {schema["properties"].get("schema", {}).get("const"): schema  # by the name that a document has
           for schema in (json.loads(file.read_text()) for file in (TESTS.parent / "config/schema").iterdir())}

BUILD = pathlib.Path(os.environ["P2PD_BUILD"]).resolve()
P2PCTL, KILL_AT = str(BUILD / "bin/p2pctl"), str(BUILD / "bin/kill_at")
ROOT = os.geteuid() == 0
needs_root = unittest.skipUnless(ROOT, "SKIP: needs root")

STEP = "{gate: a, title: A, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [iommu=pt]}}"
OPTIONS = ("{gate: b, title: B, check: modprobe-options, fix: modprobe-options,"
           " with: {module: nvidia, options: {NVreg_EnableMSI: 1}}}")


def plan_text(*steps, head="name: test\ntitle: test\n"):
    return head + "steps:\n" + "".join(f"  - {step}\n" for step in steps or [STEP])


def prove(tree, uses, limited=False, **other):
    """Writes into a tree the files of a proof on this boot; `other` replaces existing values."""
    dump = (tree / "lspci-xxxx.txt").read_text()
    gpus = [f"10de:2684 {address}" for address in re.findall(r"^([0-9a-f:.]{12}) (?:VGA compatible|3D) controller: NVIDIA", dump, re.M)]
    modules = {path.name: (path / "srcversion").read_text().strip() for path in tree.glob("sys/module/nvidia*")}
    proof = {"machine_id": "", "boot_id": (tree / BOOT_ID).read_text().strip(), "gpus": gpus, "modules": modules, "without": [], "fit_for": uses}
    write(tree / "run/p2pd" / ("limited" if limited else "ready"), json.dumps(proof | other))


class Case(unittest.TestCase):
    RECORD = "rtx4090-x2-am5"

    def setUp(self):
        directory = scratch_directory("p2pd-cli-")
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)
        self.scratch.chmod(0o755)
        self.state = self.scratch / "tree.p2pd"
        self.plan = self.scratch / "plan.yaml"
        write(self.plan, plan_text())
        self.use(self.RECORD)

    def use(self, record):
        self.tree = self.scratch / "tree"
        shutil.rmtree(self.tree, ignore_errors=True)
        subprocess.run(["cp", "-a", MACHINES / record, self.tree], check=True)
        self.before = picture(self.tree)

    def has_driver(self, version, recorded="580.95.05"):
        """Makes the record's driver, `recorded`, one of this version: files, links, packages."""
        names = {recorded: version, "-" + recorded.split(".")[0]: "-" + version.split(".")[0]}

        def other(text):
            for name, new in names.items():
                text = text.replace(name, new)
            return text
        for path in sorted(self.tree.rglob("*"), key=lambda path: -len(path.parts)):
            if path.is_symlink():
                if (target := os.readlink(path)) != other(target):
                    path.unlink()
                    path.symlink_to(other(target))
            elif path.is_file() and (recorded.encode() in (data := path.read_bytes()) or path.name == "status"):
                path.write_bytes(other(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))
            if other(path.name) != path.name:
                path.rename(path.with_name(other(path.name)))
        self.before = picture(self.tree)

    def fresh(self):
        shutil.rmtree(self.state, ignore_errors=True)
        self.use(self.RECORD)

    def ctl(self, *words, before=(), root=None, **more):
        command = [*before, P2PCTL, *map(str, agreed(words)), "--root", str(root or self.tree)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, **{"text": True, "timeout": 60, **more})

    def json(self, *words, code=0):
        """The JSON document of a verb that exits with `code`; `status` exits with the code that its document has."""
        done = self.ctl(*words, "--json")
        told = json.loads(done.stdout) if done.stdout else {}
        wanted = told.get("exit_status", code) if words[0] == "status" else code
        self.assertEqual(done.returncode, wanted, (done.stdout or "") + done.stderr)
        if schema := SCHEMAS.get(told.get("schema")):
            jsonschema.validate(told, schema)
        return told

    def assert_unchanged(self):
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def assert_refused(self, done, pattern, code=1):
        """Checks an error: its exit code, one line and at most a hint, and the tree as it was."""
        self.assertEqual(done.returncode, code, (done.stdout or "") + done.stderr)
        lines = done.stderr.splitlines()
        self.assertTrue(lines and lines[0].startswith("p2pctl: "), done.stderr)
        self.assertRegex(lines[0], pattern)
        self.assertLessEqual(len(lines), 2, done.stderr)
        for hint in lines[1:]:
            self.assertTrue(hint.startswith("  next: "), done.stderr)
        self.assert_unchanged()

    def apply_to_end(self):
        self.assertEqual(self.json("apply", self.plan)["state"], "rebooting")
        boot(self.tree)
        self.assertEqual(self.json("apply", self.plan)["result"], "done")

    def revert_to_end(self):
        if self.json("revert")["state"] == "reverting":
            boot(self.tree)
            self.assertEqual(self.json("revert")["result"], "reverted")
        self.assert_unchanged()
