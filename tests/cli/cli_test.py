#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl as people and scripts use it, on copies of machine records: changes, bad plans, and output."""
import json
import os
import re
import shutil
import subprocess
import unittest

from cli_case import Case, OPTIONS, P2PCTL, plan_text, STEP
from terminal import on_terminal
from tree import MACHINES, boot, differences, picture, write


class Works(Case):
    def test_apply_twice_then_revert(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        self.apply_to_end()
        after = picture(self.tree)
        self.assertNotEqual(after, self.before)
        again = self.json("apply", self.plan)
        self.assertIs(again["changed"], False)
        self.assertEqual(differences(picture(self.tree), after), "")
        self.revert_to_end()
        self.assertIs(self.json("revert")["changed"], False)

    def test_doctor_names_the_blockers(self):
        done = self.ctl("doctor")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^P2P: NOT WORKING\. p2pd can try \(1 reboot\)\.$")
        self.assertRegex(done.stdout, r"-> +iommu ")
        self.assertRegex(done.stdout, r"-> +acs ")
        self.assertRegex(done.stdout, r"(?m)^Next: sudo p2pctl apply ")
        done = self.ctl("doctor", "--all")
        self.assertRegex(done.stdout, r"-> +iommu ")
        self.assertRegex(done.stdout, r"✓ +gpus ")
        self.assertRegex(done.stdout, r"(?m)^iommu: .*IOMMU")
        self.assertRegex(done.stdout, r"(?m)^ seen +\S")
        self.assertFalse(self.state.exists())

    def test_the_driver_is_asked_only_for_a_plan_that_needs_it(self):
        self.use("rtx4090-x2-healthy")
        for check, asks in ((STEP, False), ("{gate: a, title: A, check: driver-peers}", True)):
            write(self.plan, plan_text(check))
            self.assertEqual(json.loads(self.ctl("doctor", self.plan, "--json").stdout)["commands_run"] > 0, asks, check)

    def with_desktop(self):
        """Logs a user in at the screen, with a display manager that draws on a GPU."""
        write(self.tree / "run/systemd/sessions/2", "UID=1000\nUSER=ada\nSTATE=active\nTYPE=wayland\nCLASS=user\nSEAT=seat0\n")
        for pid, cgroup in ((41, "system.slice/gdm.service"), (42, "user.slice/user-1000.slice/session-2.scope")):
            write(self.tree / f"proc/{pid}/comm", "Xorg\n")
            write(self.tree / f"proc/{pid}/cgroup", f"0::/{cgroup}\n")
            (self.tree / f"proc/{pid}/fd").mkdir()
            (self.tree / f"proc/{pid}/fd/3").symlink_to("/dev/nvidia0")

    def test_plan_names_what_ends(self):
        self.with_desktop()
        step = STEP.replace("with:", "needs: [idle], with:")
        idle = "{requires: idle, title: I, check: gpu-holders, with: {ignore_services: true%s}}"
        write(self.plan, plan_text(step, idle % ", sessions: end"))
        told = self.json("plan", self.plan)
        self.assertEqual(told["ends"], ["display server Xorg", "session 2 of ada on seat0"])
        self.assertRegex(self.ctl("plan", self.plan).stdout, r"ends +display server Xorg, session 2 of ada on seat0")
        write(self.plan, plan_text(step, idle % "") + "policy: {busy: wait}\n")
        self.assertRegex(self.ctl("plan", self.plan).stdout, r"waits for +idle: session 2 of ada on seat0 is open")
        write(self.plan, plan_text(step, idle % ", sessions: never"))
        self.assertRegex(self.ctl("plan", self.plan).stderr, "sessions: 'never' is neither busy nor end")

    def test_plan_says_first_what_blocks_it(self):
        self.use("rtx4090-x3-one-for-guest")
        told = self.ctl("plan").stdout
        self.assertRegex(told, r"(?s)\nBlocked; .*✗ +iommu .*blocked by +no-vfio: .*next +Take ")
        self.assertEqual(told.count("blocked by"), 1)
        self.assertNotIn("✓", told)
        self.use("rtx3090-x4-one-small-bar1")
        write(self.plan, "name: all\ntitle: all\nbased_on: geforce-p2p\ngpus: {require: all}\n")
        told = self.ctl("plan", self.plan).stdout
        self.assertRegex(told, r"(?s)\nBlocked; .*✗ +bar1-room .*next +Update .*\nThen p2pctl apply.* will\n nccl +set NCCL_P2P_LEVEL ")
        self.assertRegex(self.ctl("plan", self.plan, "--diff").stdout, r"(?s)✓ +gpus .*\+NCCL_P2P_LEVEL=")

    def test_nouveau_out_of_an_older_initramfs(self):
        """As after a power cut between the driver and its initramfs: another restart alone would load nouveau again."""
        self.use("rtx4090-x2-healthy")
        for module in (self.tree / "sys/module").glob("nvidia*"):
            shutil.rmtree(module)
        shutil.copytree(MACHINES / "rtx3090-x2-nouveau/sys/module/nouveau", self.tree / "sys/module/nouveau")
        listing = next(self.tree.glob("commands/lsinitramfs*"))
        held = json.loads(listing.read_text())
        listing.write_text(json.dumps(held | {"output": "\n".join(line for line in held["output"].splitlines() if "nouveau" not in line)}))
        told = self.ctl("plan", "--diff").stdout
        self.assertRegex(told, r"(?s)-> +other-modules .*\$ update-initramfs -u .*\$ rmmod nouveau")

    def test_no_gpu(self):
        self.use("no-gpu")
        done = self.ctl("doctor")
        self.assertEqual((done.returncode, done.stderr), (4, ""))
        self.assertRegex(done.stdout, r"You must fix 1 thing\.\nTo do:\n 1\. +gpus: no NVIDIA GPU on the PCI bus\n +Check that the cards are seated")
        self.assertEqual(self.json("apply", code=4)["state"], "blocked")
        self.assert_unchanged()

    def test_reading_verbs_change_nothing(self):
        for words in (["doctor"], ["plan"], ["status"], ["history"], ["report", "-"], ["metrics"], ["features"], ["env"], ["explain", "gpus"]):
            self.ctl(*words)
        self.assertFalse(self.state.exists())
        self.assert_unchanged()



class Plans(Case):
    def test_bad_plans(self):
        deep, wide = "[" * 100_000, "x" * 2_000_000
        rows = [
            ("empty", "", ":1: .*empty"),
            ("only a comment", "# nothing\n", ":1: .*empty"),
            ("huge", f"name: {wide}\n", "1 MiB"),
            ("deep", deep, "deeper than 32 levels"),
            ("cyclic", "name: &a [*a]\n", ":1: aliases"),
            ("aliases that grow", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", ":2: aliases"),
            ("not UTF-8", b"name: test\ntitle: \xff\xfe\n", ":2: not UTF-8"),
            ("half a character", b"name: test\ntitle: \xe2\x82\n", ":2: not UTF-8"),
            ("surrogate", plan_text().encode().replace(b"title: test", b"title: \xed\xa0\x80"), ":2: .*UTF-8"),
            ("overlong", plan_text().encode().replace(b"title: test", b"title: \xe0\x80\xaf"), ":2: .*UTF-8"),
            ("beyond Unicode", plan_text().encode().replace(b"title: test", b"title: \xf4\x90\x80\x80"), ":2: .*UTF-8"),
            ("NUL", b"name: te\0st\n", ":1: .*NUL"),
            ("UTF-16", "name: test\n".encode("utf-16"), ":1: "),
            ("broken", "name: [\n", ":[12]: "),
            ("a list", "- a\n", ":1: .*map"),
            ("two documents", plan_text() + "---\n" + plan_text(), ":5: .*document"),
            ("unknown key", plan_text() + "stepz: 1\n", ':5: stepz: unknown key; did you mean "steps"'),
            ("unknown step key", plan_text(STEP.replace("fix:", "fxi:")), ':4: .*fxi: unknown key; did you mean "fix"'),
            ("unknown policy key", plan_text() + "policy: {reboot_s: 2}\n", ':5: .*did you mean "reboots"'),
            ("unknown check", plan_text(STEP.replace("check: kernel-cmdline", "check: kernel-cmdlin")),
             ':4: .*check: there is no check "kernel-cmdlin"; did you mean "kernel-cmdline"'),
            ("unknown fix", plan_text(STEP.replace("fix: kernel-cmdline", "fix: rm")), ':4: .*fix: there is no fix "rm"'),
            ("unknown parameter", plan_text(STEP.replace("arguments", "argument")), ':4: .*did you mean "arguments"'),
            ("missing parameter", plan_text(STEP.replace(", with: {arguments: [iommu=pt]}", "")), ':4: .*"arguments" is missing'),
            ("parameter of another type", plan_text(STEP.replace("[iommu=pt]", "{a: b}")), ":4: .*arguments: expected a list"),
            ("parameter that injects", plan_text(STEP.replace("iommu=pt", "'a; reboot\\n'")), ":4: .*with"),
            ("no steps", "name: test\ntitle: test\nsteps: []\n", ":3: steps: empty"),
            ("waits for itself", plan_text(STEP.replace("with:", "after: [a], with:")), ':4: .*after: "a" waits for itself'),
            ("a cycle", plan_text(STEP.replace("with:", "after: [b], with:"), OPTIONS.replace("with:", "after: [a], with:")),
             ':4: .*"b" comes later: a cycle'),
            ("twice", plan_text(STEP, STEP), ':5: .*"a" is there twice'),
            ("key twice", plan_text(head="name: test\nname: test\ntitle: test\n"), ":2: name: given twice"),
            ("bad number", plan_text() + "policy: {reboots: -1}\n", ":5: .*reboots: expected a whole number from 0 to 20"),
            ("bad choice", plan_text() + "policy: {on_failure: explode}\n", ":5: .*expected one of revert, keep"),
            ("bad name", plan_text(head="name: ../../etc\ntitle: test\n"), ":1: name: expected a name"),
        ]
        for title, content, pattern in rows:
            with self.subTest(plan=title):
                self.fresh()
                write(self.plan, content)
                self.assert_refused(self.ctl("apply", self.plan), re.escape(str(self.plan)) + ".*" + pattern)
                self.assertFalse(self.state.exists(), "a state directory was made for a plan that cannot be used")

    def test_what_is_no_plan_file(self):
        os.mkfifo(self.scratch / "pipe")
        (self.scratch / "directory").mkdir()
        rows = [("nowhere", 'no plan "nowhere"'), ("/nowhere/x.yaml", "no plan"), (self.scratch / "directory", "directory"),
                (self.scratch / "pipe", "pipe"), ("/dev/zero", "device"), ("../../etc/passwd", "passwd")]
        for path, pattern in rows:
            with self.subTest(path=str(path)):
                self.assert_refused(self.ctl("apply", path), pattern)

    def test_a_plan_that_is_called_like_a_verb(self):
        done = self.ctl("plan", "verify", root=MACHINES / "rtx4090-x2-healthy")
        self.assertRegex(done.stdout, "^verify: P2P over PCIe works between the GPUs")
        self.assert_refused(self.ctl("apply", "verify", "--nonsense"), "--nonsense")

    def test_a_file_in_the_current_directory(self):
        write(self.scratch / "trial.yaml", plan_text(head="name: trial\ntitle: test\n"))
        for words in (["plan", "trial.yaml"], ["doctor", "trial.yaml"], ["explain", "--plan", "trial.yaml", "a"], ["apply", "trial.yaml"]):
            with self.subTest(words=words):
                done = self.ctl(*words, cwd=self.scratch)
                self.assertEqual((done.returncode == 1, done.stderr), (False, ""))
        self.fresh()
        done = self.ctl("plan", "nowhere.yaml", cwd=self.scratch)
        self.assert_refused(done, f'no plan "nowhere.yaml"; looked for {self.scratch}/nowhere.yaml')
        self.assertRegex(done.stderr, 'next: .*without ".yaml"')
        done = self.ctl("plan", "trial", cwd=self.scratch)  # a name is never a file of the owner of this directory
        self.assert_refused(done, 'no plan "trial"; looked for /etc/p2pd/plans/trial.yaml')
        self.assertRegex(done.stderr, 'next: .*"/"')

    def test_large_plans_are_refused_or_gone_on_with(self):
        """The plan as stored in the run is larger than its file, and must be read again after the reboot."""
        rows = [("arguments", [STEP.replace("iommu=pt", ",".join(f"a{i}" for i in range(50_000)))]),
                ("after", [STEP, OPTIONS.replace("with:", "after: [" + ",".join("a" * 300_000) + "], with:")]),
                ("title", [STEP.replace("title: A", "title: " + "A" * 900_000)])]
        for title, steps in rows:
            with self.subTest(large=title):
                self.fresh()
                write(self.plan, plan_text(*steps))
                done = self.ctl("apply", self.plan, "--json", timeout=10)
                if done.returncode != 0:
                    self.assert_unchanged()
                    continue
                boot(self.tree)
                self.json("apply", self.plan)
                self.revert_to_end()

    def test_usage(self):
        told = subprocess.run([P2PCTL], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(told.returncode, 0)
        self.assertRegex(told.stdout, r"(?s)To look.*\n  doctor .*To change.*\n  apply .*\nExamples:\n.*\nExit codes:\n  0 ")
        self.assert_refused(self.ctl("explain", "gpu"), 'no step "gpu"')


class OtherMachine(Case):
    def test_looking_verbs_run_there(self):
        ssh = self.scratch / "bin/ssh"
        write(ssh, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
        ssh.chmod(0o755)
        for words in (["doctor", "-H", "gpu7", "--all", "it's"], ["doctor", "--host=gpu7", "--all", "it's"], ["-H", "gpu7", "doctor", "--all", "it's"]):
            with self.subTest(words=words):
                done = subprocess.run([P2PCTL, *words], capture_output=True, text=True, timeout=60, env=os.environ | {"PATH": f"{ssh.parent}:/usr/bin:/bin"})
                self.assertEqual(done.stdout.splitlines(), ["--", "gpu7", "'p2pctl'", "'doctor'", "'--all'", "'it'\\''s'"], done.stderr)


class Printing(Case):
    def on_terminal(self, *words, answer="", **environment):
        return on_terminal([P2PCTL, *map(str, words), "--root", self.tree], answer, env={**os.environ, "TERM": "xterm", **environment})[1]

    def test_explain_lists_the_steps(self):
        self.assertRegex(self.ctl("explain").stdout, r"(?m)^ gate +iommu +No IOMMU translates")
        self.assertIn("p2p-proven", [step["step"] for step in self.json("explain")["steps"]])

    def test_history_is_a_line_a_run(self):
        self.json("apply", self.plan)
        self.assertRegex(self.ctl("history").stdout, r"\A run +began +plan +state +changed +reason\n 1 +20\S+ +test +rebooting +1 steps ")
        self.assertRegex(self.ctl("history", "--all").stdout, r"(?m)^ 20\S+ +run 1 +\S+ +fixed +a ")

    def test_control_characters_of_the_host_stay_off_the_terminal(self):
        boot(self.tree, "quiet \x1b[2Jevil")
        write(self.plan, plan_text(STEP, OPTIONS))
        for words in (["doctor"], ["doctor", self.plan], ["plan"], ["apply", "--yes"], ["history"]):
            out = self.on_terminal(*words)
            self.assertNotIn("\x1b[2J", out, words)
        self.assertIn("quiet ?[2Jevil", self.on_terminal("doctor", "--all", self.plan))


if __name__ == "__main__":
    unittest.main()
