#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl on trees: bad ones, links that lead outside of them, and the rights of users other than root."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

import yaml

from cli_case import Case, KILL_AT, needs_root, P2PCTL, plan_text
from tree import differences, picture, write

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "config/plans/geforce-p2p.yaml"


class Roots(Case):
    def setUp(self):
        super().setUp()
        write(self.plan, plan_text() + "policy: {attempts: 1}\n")
        self.outside = self.scratch / "outside"
        write(self.outside / "secret", "root=/dev/vda iommu=pt\n")

    def test_bad_roots(self):
        for path, pattern in ((self.scratch / "absent", "absent.*No such file"), (self.plan, "plan.yaml is a file"), ("", ".")):
            with self.subTest(root=str(path)):
                done = subprocess.run([P2PCTL, "apply", "--yes", self.plan, "--root", path], capture_output=True, text=True, timeout=60)
                self.assert_refused(done, pattern)

    def test_roots_that_are_written_otherwise(self):
        (self.scratch / "link").symlink_to(self.tree)
        for path in (self.tree / ".." / "tree", str(self.tree) + "//", self.scratch / "link"):
            with self.subTest(root=str(path)):
                self.fresh()
                done = self.ctl("apply", self.plan, root=path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(self.state.is_dir(), "its state is one for all names of the tree")

    def test_links_do_not_lead_outside(self):
        """Every directory on the way to the drop-in, as a link: absolute or by '..', to a place that exists outside."""
        for way in (str(self.outside), "../" * 30 + str(self.outside)[1:]):
            for name in ("etc", "etc/default", "etc/default/grub.d"):
                with self.subTest(way=way, name=name):
                    self.use("rtx4090-x2-am5")
                    shutil.rmtree(self.state, ignore_errors=True)
                    shutil.rmtree(self.tree / name, ignore_errors=True)
                    (self.tree / name).symlink_to(way)
                    outside = picture(self.outside)
                    self.before = picture(self.tree)
                    self.ctl("apply", self.plan)
                    self.assertEqual(differences(picture(self.outside), outside), "")
                    self.ctl("revert")
                    self.assertEqual(differences(picture(self.outside), outside), "")
                    self.assert_unchanged()

    def test_a_link_at_the_place_of_the_file(self):
        for target in (self.outside / "secret", "/etc/default/grub", "/nowhere"):
            with self.subTest(target=str(target)):
                self.fresh()
                place = self.tree / "etc/default/grub.d/zz-p2pd.cfg"
                place.parent.mkdir(exist_ok=True)
                place.unlink(missing_ok=True)
                place.symlink_to(target)
                outside, self.before = picture(self.outside), picture(self.tree)
                self.assertNotEqual(self.ctl("apply", self.plan).returncode, 0)
                self.assertEqual(differences(picture(self.outside), outside), "")
                self.assert_unchanged()

    def test_nothing_outside_is_read(self):
        (self.tree / "proc/cmdline").unlink()
        (self.tree / "proc/cmdline").symlink_to(self.outside / "secret")
        self.assertNotIn("dev/vda", self.ctl("doctor", self.plan).stdout)
        self.assertNotEqual(self.json("doctor", self.plan, code=2)["steps"][0]["verdict"], "pass")


class Images(Case):
    def test_no_check_of_the_plan_misses_the_machine(self):
        """In the tree of a system that has not booted: checks that need a machine are left to its first boot."""
        image, steps = self.scratch / "image", []
        write(image / "etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
        write(image / "var/lib/dpkg/status", "Package: base-files\nStatus: install ok installed\nArchitecture: amd64\nVersion: 12\n"
                                             "Maintainer: x <x@example.com>\nDescription: x\n")
        for step in yaml.safe_load(SHIPPED.read_text())["steps"]:
            name = next(iter(step.values()))
            if "goal" not in step:
                steps.append({"gate": name, "title": name, **{key: step[key] for key in ("check", "fix", "with") if key in step}})
        self.plan.write_text(json.dumps({"name": "gates", "title": "t", "steps": steps}))
        done = self.ctl("doctor", self.plan, "--json", root=image)
        self.assertIn("steps", json.loads(done.stdout), done.stdout)
        told = {step["step"]: step for step in json.loads(done.stdout)["steps"]}
        self.assertIn("new-modules", told)
        for name, step in told.items():
            self.assertNotRegex(step.get("summary", ""), "/sys/|/proc/", name)


@needs_root
class OtherUsers(Case):
    NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

    def setUp(self):
        super().setUp()
        if not shutil.which("setpriv"):
            self.skipTest("SKIP: no setpriv")
        if subprocess.run([*self.NOBODY, P2PCTL, "--version"], capture_output=True).returncode != 0:
            self.skipTest(f"SKIP: nobody cannot run {P2PCTL}")

    def reader(self):
        """User nobody, in the group that may read the state, like the service p2pd."""
        group = self.state.stat().st_gid if self.state.exists() else 65534
        return ("setpriv", "--reuid=65534", f"--regid={group}", "--clear-groups")

    def test_reads_beside_a_killed_writer(self):
        for number in [*range(1, 40, 4), *range(40, 160, 12)]:
            self.fresh()
            self.ctl("apply", self.plan, before=[KILL_AT, str(number), "--"])
            for verb in ("status", "history"):
                with self.subTest(killed_before_call=number, verb=verb):
                    done = self.ctl(verb, before=self.reader())
                    if done.stderr:  # only while the database is made, before anything has run
                        self.assertIn("is incomplete", done.stderr)
                        self.assertLess(number, 40)
                    else:
                        self.assertIn(done.returncode, (0, 3))  # 3: status of an open run

    def test_changes_nothing(self):
        self.assert_refused(self.ctl("apply", self.plan, before=self.NOBODY), "(?i)permission denied")
        self.assertFalse(self.state.exists())
        self.json("apply", self.plan)
        self.before = picture(self.tree)
        for words in (["apply", self.plan], ["revert"], ["pause"]):
            self.assert_refused(self.ctl(*words, before=self.NOBODY), "(?i)permission denied")

    def test_what_cannot_be_read_is_not_nothing(self):
        self.json("apply", self.plan)
        self.state.chmod(0o700)
        done = self.ctl("status", before=self.NOBODY)
        self.assertNotIn("nothing has run", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_umask_does_not_hide_the_state(self):
        done = self.ctl("apply", self.plan, preexec_fn=lambda: os.umask(0o077) and None)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.ctl("status", before=self.reader()).returncode, 3)  # a reboot is due
        self.assert_refused_to_look(self.ctl("status", before=self.NOBODY))

    def assert_refused_to_look(self, done):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("Permission denied", done.stderr)


if __name__ == "__main__":
    unittest.main()
