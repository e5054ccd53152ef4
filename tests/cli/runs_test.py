#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several runs on one tree: what p2pctl undoes, and what its status says of that. P2PD_BUILD: the build directory."""
import unittest

from cli_case import Case, OPTIONS, plan_text
from tree import differences, picture, write

MORE = ("{gate: c, title: C, check: modprobe-options, fix: modprobe-options,"
        " with: {module: nvidia_uvm, options: {uvm_disable_hmm: 1}}}")
NEVER = "{gate: d, title: D, check: kernel-cmdline, with: {arguments: [nobody.gives=1]}, after: [c]}"


class Runs(Case):
    def setUp(self):
        super().setUp()
        write(self.plan, plan_text(OPTIONS, head="name: first\ntitle: first\n"))
        self.second = self.scratch / "second.yaml"
        write(self.second, plan_text(MORE, NEVER, head="name: second\ntitle: second\n"))
        self.json("apply", self.plan)
        self.first = picture(self.tree)
        self.assertNotEqual(differences(self.first, self.before), "")

    def assert_first_stays(self):
        self.assertEqual(differences(picture(self.tree), self.first), "")

    def test_a_second_run_fails(self):
        told = self.json("apply", self.second, code=1)
        self.assertEqual((told["state"], told["plan"]), ("failed", "second"))
        self.assert_first_stays()
        self.assertEqual(told["undone"], ["c"])
        self.assertEqual(told["stays"], [{"run": 1, "plan": "first", "steps": ["b"]}])
        self.assertEqual(self.json("status")["stays"], told["stays"])
        self.assertRegex(self.ctl("status").stdout, r"(?m)^ undone +c\n stays +run 1 of plan first: b$")
        self.revert_to_end()

    def test_a_second_run_is_cancelled(self):
        write(self.second, plan_text(MORE, NEVER.replace(", after: [c]", ""), head="name: second\ntitle: second\n"))
        self.assertEqual(self.json("apply", self.second, code=4)["state"], "blocked")
        told = self.json("cancel")
        self.assertEqual((told["state"], told["result"], told["undone"]), ("idle", "cancelled", []))
        self.assert_first_stays()
        self.revert_to_end()

    def test_revert_says_that_nothing_stays(self):
        told = self.json("revert")
        self.assertEqual((told["result"], told["undone"], told["stays"]), ("reverted", ["b"], []))
        self.assertRegex(self.ctl("status").stdout, r"(?m)^ undone +b\n stays +nothing is changed by p2pd$")
        self.assert_unchanged()


if __name__ == "__main__":
    unittest.main()
