#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The role `p2pd` on this machine, with a p2pctl that plays one run: what the role does to runs that it did not begin. Needs no root."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
# the folder that STATE names: status, the answer; apply and cancel: the answer after that verb; refused: the error of apply
P2PCTL = """#!/bin/sh
cd "$STATE" || exit
echo "$1" >> calls
case $1 in
    plan) exit 2 ;;
    status)
        cat status
        case $(cat status) in *'"ready"'*) exit 0 ;; *'"failed"'*) exit 1 ;; *'"blocked"'*) exit 4 ;; *'"limited"'*) exit 5 ;; *) exit 3 ;; esac ;;
    apply) [ ! -e refused ] || { cat refused >&2; exit 1; }; mv apply status ;;
    cancel) mv cancel status ;;
    *) echo "unknown: $*" >&2; exit 64 ;;
esac
"""
PLAY = """- hosts: localhost
  connection: local
  gather_facts: false
  roles: [p2pd]
"""
INSTALLED = """- ansible.builtin.set_fact: {p2pd_program: {stat: {exists: true}}}
"""


def status(run, state, stays=(), reason="for a reason"):
    return json.dumps({"run": run, "state": state, "reason": reason, "reboots": 0, "reboot_required": False,
                       "stays": [{"run": one, "plan": "first", "steps": ["a"]} for one in stays]})


PROVEN = status(1, "ready", [1])


@unittest.skipUnless(shutil.which("ansible-playbook"), "packaging/deps install fleet: there is no Ansible")
class Role(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.state = self.place / "state"
        self.state.mkdir()
        (self.place / "p2pctl").write_text(P2PCTL)
        (self.place / "p2pctl").chmod(0o755)
        shutil.copytree(TOP / "packaging/ansible/roles/p2pd", self.place / "roles/p2pd")
        (self.place / "roles/p2pd/tasks/install.yml").write_text(INSTALLED)
        (self.place / "play.yml").write_text(PLAY)

    def roll(self, ends_well=False, **files):
        """Runs the role; returns its output, and the verbs that change something."""
        for name, text in {"status": PROVEN, **files}.items():
            (self.state / name).write_text(text)
        home = {name: str(self.place) for name in ("HOME", "ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP", "ANSIBLE_REMOTE_TEMP")}
        done = subprocess.run(["ansible-playbook", "-i", "localhost,", "-e", "p2pd_settle_s=5", "play.yml"], cwd=self.place, check=False,
                              env={**os.environ, **home, "PATH": f"{self.place}:{os.environ['PATH']}", "STATE": str(self.state)},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode == 0, ends_well, done.stdout)
        calls = (self.state / "calls").read_text().split()
        return done.stdout, [verb for verb in calls if verb not in ("plan", "status")]

    def test_ready(self):
        self.assertEqual(self.roll(ends_well=True, apply=status(2, "ready", [1, 2]))[1], ["apply"])

    def test_the_run_of_another_plan_is_open(self):
        said, calls = self.roll(status=status(1, "blocked"), refused="run 1 of plan first is blocked\n")
        self.assertEqual(calls, ["apply"])
        self.assertIn("is not ready: run 1 of plan first is blocked. No run was begun", said)

    def test_an_earlier_run_of_the_plan_is_open(self):
        said, calls = self.roll(status=status(1, "blocked"), apply=status(1, "blocked"))
        self.assertEqual(calls, ["apply"])
        self.assertIn("is not ready: blocked: for a reason. No run was begun", said)

    def test_the_second_plan_fails(self):
        said, calls = self.roll(apply=status(2, "failed", [1]))
        self.assertEqual(calls, ["apply"])
        self.assertIn("is not ready: failed: for a reason. What run 2 changed is undone", said)

    def test_the_second_plan_fails_and_is_kept(self):
        said, calls = self.roll(apply=status(2, "failed", [1, 2]))
        self.assertEqual(calls, ["apply"])
        self.assertIn("The changes of run 2 stay", said)

    def test_the_second_plan_ends_limited(self):
        said, calls = self.roll(apply=status(2, "limited", [1, 2]))
        self.assertEqual(calls, ["apply"])
        self.assertIn("is not ready: limited: for a reason. The changes of run 2 stay", said)

    def test_the_second_plan_is_blocked(self):
        said, calls = self.roll(apply=status(2, "blocked", [1]), cancel=status(2, "idle", [1]))
        self.assertEqual(calls, ["apply", "cancel"])
        self.assertIn("What run 2 changed is undone", said)

    def test_the_second_plan_does_not_settle(self):
        said, calls = self.roll(apply=status(2, "walking", [1]), cancel=status(2, "idle", [1]))
        self.assertEqual(calls, ["apply", "cancel"])
        self.assertIn("What run 2 changed is undone", said)

    def test_the_cancel_does_not_end(self):
        said, calls = self.roll(apply=status(2, "blocked", [1]), cancel=status(2, "reverting", [1]))
        self.assertEqual(calls, ["apply", "cancel"])
        self.assertIn("Run 2 is NOT undone (reverting: for a reason)", said)

    def test_a_rollback_that_does_not_end_is_left_to_p2pd(self):
        said, calls = self.roll(apply=status(2, "reverting", [1]))
        self.assertEqual(calls, ["apply"])
        self.assertIn("Run 2 is NOT undone (reverting: for a reason)", said)


class Variables(unittest.TestCase):
    def test_each_is_specified_and_described(self):
        role = TOP / "packaging/ansible/roles/p2pd"
        defaults, specified = (yaml.safe_load((role / name).read_text()) for name in ("defaults/main.yml", "meta/argument_specs.yml"))
        options = specified["argument_specs"]["main"]["options"]
        self.assertEqual(defaults, {name: option["default"] for name, option in options.items()})
        page = (TOP / "packaging/ansible/README.md").read_text()
        self.assertEqual({name for name in options if f"`{name}`" not in page}, set())


if __name__ == "__main__":
    unittest.main()
