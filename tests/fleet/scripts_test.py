#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shellcheck of the scripts for Slurm and Kubernetes; that for Kubernetes on a kubectl that holds one node in files; what mkosi reads of the
configurations of images. Needs no root."""
import os
import pathlib
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = TOP / "packaging/kubernetes/p2pd-kubectl"
# the folder that STATE names: cordoned, marked, pods; fails: a verb that fails. Each call is a line of `calls`
KUBECTL = r"""#!/bin/sh
cd "$STATE" || exit
shift  # --request-timeout
echo "$*" >> calls
[ "$(cat fails 2>/dev/null)" != "$1" ] || { echo "error: $1 refused" >&2; exit 1; }
case $* in
    'get node n1 --output jsonpath={.spec.unschedulable}') [ ! -e cordoned ] || echo true ;;
    'get node n1 --output jsonpath={.metadata.annotations.p2pd\.org/cordoned}') [ ! -e marked ] || echo true ;;
    'patch node n1 --type=merge --patch {"spec":{"unschedulable":true},"metadata":{"annotations":{"p2pd.org/cordoned":"true"}}}') touch cordoned marked ;;
    'patch node n1 --type=merge --patch {"spec":{"unschedulable":null},"metadata":{"annotations":{"p2pd.org/cordoned":null}}}') rm -f cordoned marked ;;
    'drain n1 --ignore-daemonsets --delete-emptydir-data --timeout=50s') [ ! -e pods ] || { echo 'error: timed out' >&2; exit 1; } ;;
    *) echo "unknown: $*" >&2; exit 64 ;;
esac
"""


class Scripts(unittest.TestCase):
    def test_shellcheck(self):
        for script in (SCRIPT, SCRIPT.with_name("p2pd-node"), TOP / "packaging/slurm/p2pd-slurm"):
            done = subprocess.run(["shellcheck", script], stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


class Mkosi(unittest.TestCase):
    def test_configurations(self):
        for file, says in (("mkosi.default", ("debian", "bookworm", "linux-headers-amd64", "gcc-12")),
                           ("mkosi.ubuntu", ("ubuntu", "jammy", "linux-headers-generic", "gcc-11"))):
            done = subprocess.run(["mkosi", "--default", file, "summary"], capture_output=True, text=True, check=False, cwd=TOP / "packaging/images/mkosi")
            self.assertEqual(done.returncode, 0, done.stderr)
            said = done.stdout + done.stderr
            self.assertLessEqual({*says, str(TOP / "packaging/images/mkosi/mkosi.finalize")}, set(said.split()))


class Kubernetes(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.state = self.place / "state"
        self.state.mkdir()
        (self.place / "kubectl").write_text(KUBECTL)
        (self.place / "kubectl").chmod(0o755)
        for when in ("before-change", "after-ready"):
            (self.place / f"{when}.d").mkdir()
            (self.place / f"{when}.d/kubernetes").symlink_to(SCRIPT)

    def hook(self, when, code, says=""):
        """Runs the script as a hook, by its folder."""
        done = subprocess.run([self.place / f"{when}.d/kubernetes"], capture_output=True, text=True, check=False,
                              env={"PATH": f"{self.place}:{os.environ['PATH']}", "STATE": str(self.state), "NODE_NAME": "n1"})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertNotIn("unknown", done.stderr)

    def is_there(self, *names):
        self.assertEqual({path.name for path in self.state.iterdir()} - {"calls"}, set(names))

    def test_there_and_back(self):
        self.hook("before-change", 0)
        self.is_there("cordoned", "marked")
        self.assertIn("drain n1", (self.state / "calls").read_text())
        self.hook("after-ready", 0)
        self.is_there()

    def test_busy_until_the_pods_are_gone(self):
        (self.state / "pods").touch()
        for _ in range(2):
            self.hook("before-change", 1, "node n1 is not drained yet")
            self.is_there("cordoned", "marked", "pods")
        (self.state / "pods").unlink()
        self.hook("before-change", 0)

    def test_what_an_operator_cordoned_stays_cordoned(self):
        (self.state / "cordoned").touch()
        self.hook("before-change", 0)
        self.hook("after-ready", 0)
        self.is_there("cordoned")

    def test_a_cluster_that_refuses(self):
        for verb in ("get", "patch", "drain"):
            (self.state / "fails").write_text(verb)
            self.hook("before-change", 1, f"error: {verb} refused")
        for verb in ("get", "patch"):
            (self.state / "fails").write_text(verb)
            self.hook("after-ready", 1, f"error: {verb} refused")
            self.is_there("cordoned", "marked", "fails")

    def test_another_name(self):
        done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("before-change", done.stderr)


if __name__ == "__main__":
    unittest.main()
