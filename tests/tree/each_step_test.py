#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each step of the shipped plan is needed: without it, the cause of some recorded machine is no longer found, or some scenario
of the virtual machine fails (tests/vm/run --without STEP)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/vm"))
from plan_without import name_of, shipped, without  # noqa: E402

BUILD = pathlib.Path(os.environ.get("P2PD_BUILD") or ROOT / "build/dev").resolve()
P2PCTL = BUILD / "bin/p2pctl"
IN_VM = json.loads((ROOT / "tests/vm/each_step.json").read_text())


class EachStep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = shipped()
        cls.folder = tempfile.TemporaryDirectory()
        cls.records = sorted(path.parent for path in (BUILD / "machines").glob("*/machine.json"))
        cls.causes = {record: cls.cause(record, cls.plan) for record in cls.records}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def cause(cls, record, plan):
        """The step that doctor names as the root cause, and the step that blocks its fix."""
        path = pathlib.Path(cls.folder.name, "plan.yaml")
        path.write_text(json.dumps(plan))
        done = subprocess.run([P2PCTL, "doctor", path, "--root", record, "--json"], stdout=subprocess.PIPE, check=False, text=True)
        conclusion = json.loads(done.stdout).get("conclusion") or {}
        return conclusion.get("step"), conclusion.get("obstacle", "").split(":")[0]

    def test_each_state_is_somebodys_cause(self):
        names = [name_of(step) for step in self.plan["steps"]]
        for step in self.plan["steps"]:
            name = name_of(step)
            told = [record for record in self.records if name in self.causes[record]]
            with self.subTest(name):
                if told:
                    self.assertNotIn(name, self.cause(told[0], without(self.plan, name)))
                else:
                    self.assertIn(name, IN_VM, "no record has this cause, and tests/vm/each_step.json names no scenario for it")
        self.assertEqual([name for name in IN_VM if name not in names], [], "tests/vm/each_step.json names steps that are not there")

    def test_the_scenarios_are_there(self):
        known = {path.stem.replace("_", "-") for path in (ROOT / "tests/vm/scenarios").glob("*.py")}
        self.assertEqual([why for why in IN_VM.values() if why["fails"] not in known | {"nothing"}], [])

    def test_few_fail_nothing(self):
        nothing = {name for name, why in IN_VM.items() if why["fails"] == "nothing"}
        self.assertLessEqual(nothing, {"bar1", "driver-peers", "nccl", "rdma"}, "a step that nobody would miss")


if __name__ == "__main__":
    unittest.main()
