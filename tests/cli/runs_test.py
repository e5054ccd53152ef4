#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs and their effects on a tree: what p2pctl undoes, and the reports of status, doctor and verify. P2PD_BUILD: the build directory."""
import unittest

from cli_case import Case, OPTIONS, plan_text, STEP
from tree import boot, differences, picture, write

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

    def test_an_open_run_of_an_earlier_installation(self):
        """A file of preinst ends it, once; its changes, and those of the first run, stay until a revert."""
        write(self.second, plan_text(MORE, NEVER.replace(", after: [c]", ""), head="name: second\ntitle: second\n"))
        self.assertEqual(self.json("apply", self.second, code=4)["state"], "blocked")
        self.assertRegex(self.ctl("apply", self.plan).stderr, "run 2 of plan second is blocked")
        write(self.state / "installed-again", "")
        self.assertEqual(self.json("apply", self.plan)["run"], 3)
        ended = next(run for run in self.json("history")["runs"] if run["id"] == 2)
        self.assertEqual((ended["state"], ended["reason"]), ("failed", "p2pd was removed during this run, and installed again"))
        self.assertFalse((self.state / "installed-again").exists())
        self.revert_to_end()

    def test_revert_says_that_nothing_stays(self):
        told = self.json("revert")
        self.assertEqual((told["result"], told["undone"], told["stays"]), ("reverted", ["b"], []))
        self.assertRegex(self.ctl("status").stdout, r"(?m)^ undone +b\n stays +nothing is changed by p2pd$")
        self.assert_unchanged()


class LastRun(Case):
    def test_doctor_tells_of_a_failed_run(self):
        self.assertIsNone(self.json("doctor", self.plan, code=2)["last_run"])
        blocked = "{gate: a, title: A, check: gpu-inventory, with: {at_least: 9}, operator: Install nine.}"
        write(self.plan, plan_text(blocked))
        self.assertRegex(self.ctl("apply", self.plan).stdout, r"(?s)\Ablocked |\nblocked .*\n 1\. +a: .*\n +Add a card; .*\nThen \"sudo p2pctl retry\"")
        self.assertRegex(self.ctl("doctor", self.plan).stdout, r"\nLast run blocked: .*2 .*GPU")
        last = self.json("doctor", self.plan, code=4)["last_run"]
        self.assertEqual((last["state"], last["undone"]), ("blocked", []))
        self.assertTrue(last["next"].startswith("Add a card; "), last)

    def test_what_is_in_the_way_says_what_to_do(self):
        """The next step is that of the blocking step, not of the step that needs it."""
        self.use("rtx4090-x2-dpkg-broken")
        told = self.json("apply", code=4)
        self.assertTrue(told["reason"].startswith("driver needs packages: dpkg was interrupted"), told["reason"])
        self.assertTrue(told["next"].startswith('Run "sudo dpkg --configure -a"'), told["next"])


class Verify(Case):
    def test_what_others_changed(self):
        self.assertEqual(self.json("verify"), {"schema": "p2pd.verify/1", "drift": False, "changed": []})
        self.apply_to_end()
        self.assertEqual(self.ctl("verify").stdout, "Everything is as p2pd left it. P2P is not proven on this boot.\n")
        ours = [path for path in picture(self.tree) if path.endswith("zz-p2pd.cfg")]
        self.assertEqual(len(ours), 1)
        write(self.tree / ours[0].lstrip("/"), "GRUB_CMDLINE_LINUX=quiet\n")
        done = self.ctl("verify")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout, r"✗  a  /etc/default/grub.d/zz-p2pd.cfg was changed since\nNext: \"sudo p2pctl apply\"")
        (self.tree / ours[0].lstrip("/")).unlink()
        changed = self.json("verify", code=2)
        self.assertEqual(changed["changed"], [{"step": "a", "what": "/etc/default/grub.d/zz-p2pd.cfg", "change": "was removed since"}])
        write(self.tree / ours[0].lstrip("/"), "mine\n")
        done = self.ctl("revert")
        self.assertRegex(done.stdout, r"zz-p2pd.cfg was changed since by somebody else; that version is kept as ")

    def test_a_file_of_a_step_that_only_a_fix_required(self):
        write(self.plan, plan_text(STEP.replace("fix:", "needs: [b], fix:"), OPTIONS.replace("gate: b", "requires: b")))
        self.apply_to_end()
        write(self.tree / "etc/modprobe.d/zz-p2pd.conf", "mine\n")
        self.assertRegex(self.ctl("verify").stdout, r"✗  b  /etc/modprobe.d/zz-p2pd.conf was changed since\n")
        told = self.ctl("revert").stdout
        boot(self.tree)
        self.assertRegex(told + self.ctl("revert").stdout, r"note +/etc/modprobe.d/zz-p2pd.conf was changed since by somebody else; that version is kept as ")

    def test_no_undo_record_is_skipped(self):
        self.apply_to_end()
        record = next((self.state / "undo").glob("*.json"))
        write(record, "{")
        done = self.ctl("verify")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^p2pctl: .*undo record .* is damaged\n  next: ")


if __name__ == "__main__":
    unittest.main()
