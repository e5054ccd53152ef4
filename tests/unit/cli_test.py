#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl as people and scripts meet it, on copies of machine records: what is done, bad input, a bad state directory,
two at once, stops, other users, and what is printed. P2PD_BUILD: the build directory."""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import MACHINES, boot, differences, picture, scratch_directory, write

BUILD = pathlib.Path(os.environ["P2PD_BUILD"]).resolve()
P2PCTL, KILL_AT = str(BUILD / "bin/p2pctl"), str(BUILD / "bin/kill_at")
ROOT = os.geteuid() == 0
needs_root = unittest.skipUnless(ROOT, "SKIP: needs root")

STEP = "{state: a, title: A, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [iommu=pt]}}"
OPTIONS = ("{state: b, title: B, check: modprobe-options, fix: modprobe-options,"
           " with: {module: nvidia, options: {NVreg_EnableMSI: 1}}}")


def plan_text(*steps, head="name: test\ntitle: test\n"):
    return head + "steps:\n" + "".join(f"  - {step}\n" for step in steps or [STEP])


class Case(unittest.TestCase):
    def setUp(self):
        directory = scratch_directory("p2pd-cli-")
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)
        self.scratch.chmod(0o755)
        self.state = self.scratch / "tree.p2pd"
        self.plan = self.scratch / "plan.yaml"
        write(self.plan, plan_text())
        self.use("rtx4090-x2-am5")

    def use(self, record):
        self.tree = self.scratch / "tree"
        shutil.rmtree(self.tree, ignore_errors=True)
        subprocess.run(["cp", "-a", MACHINES / record, self.tree], check=True)
        self.before = picture(self.tree)

    def fresh(self):
        shutil.rmtree(self.state, ignore_errors=True)
        self.use("rtx4090-x2-am5")

    def ctl(self, *words, before=(), root=None, **more):
        command = [*before, P2PCTL, *map(str, words), "--root", str(root or self.tree)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, **{"text": True, "timeout": 60, **more})

    def json(self, *words, code=0):
        done = self.ctl(*words, "--json")
        self.assertEqual(done.returncode, code, (done.stdout or "") + done.stderr)
        return json.loads(done.stdout)

    def assert_unchanged(self):
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def assert_refused(self, done, pattern, code=1):
        """An error: its exit code, one line and at most a hint, and the tree as it was."""
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
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stdout, r"✗ +iommu ")
        self.assertRegex(done.stdout, r"✗ +acs ")
        self.assertRegex(done.stdout, r"(?m)^Root cause: .*IOMMU")
        self.assertRegex(done.stdout, r"(?m)^ besides .*\bacs\b")
        self.assertRegex(done.stdout, r"(?m)^ next +\S")
        self.assertFalse(self.state.exists())

    def test_no_gpu_is_one_line(self):
        self.use("no-gpu")
        done = self.ctl("doctor")
        self.assertEqual((done.returncode, done.stderr), (4, ""))
        self.assertRegex(done.stdout, r"\A✗ no NVIDIA GPU on the PCI bus\..*\n\Z")
        self.assertEqual(self.json("apply", code=4)["state"], "blocked")
        self.assert_unchanged()

    def test_reading_verbs_change_nothing(self):
        for words in (["doctor"], ["plan"], ["status"], ["history"], ["explain", "gpus"]):
            self.ctl(*words)
        self.assertFalse(self.state.exists())
        self.assert_unchanged()

    def test_json_of_every_verb(self):
        rows = [(0, "record", self.scratch / "copy"), (4, "doctor"), (0, "plan", self.plan), (2, "plan", self.plan, "--detailed-exitcode"),
                (0, "explain", "gpus"), (0, "status"), (0, "history"), (1, "pause"), (0, "apply", self.plan), (0, "pause"),
                (0, "status"), (0, "history"), (0, "resume"), (1, "retry"), (0, "cancel"), (0, "revert")]
        for code, *words in rows:
            with self.subTest(verb=" ".join(map(str, words))):
                self.assertRegex(self.json(*words, code=code)["schema"], r"^p2pd\.[a-z-]+/1$")

    def test_every_record_has_a_diagnosis(self):
        for machine in sorted(MACHINES.glob("*/machine.json")):
            with self.subTest(record=machine.parent.name):
                done = self.ctl("doctor", "--json", root=machine.parent)
                found = json.loads(done.stdout)
                self.assertEqual(done.returncode, 0 if found["holds"] else 4)
                self.assertEqual(found["holds"], found["conclusion"] is None)

    def test_root_causes(self):
        """Each record's root cause is the one that was written beside it, with its source, before there was a check."""
        for expected in sorted(MACHINES.glob("*/expected.json")):
            with self.subTest(record=expected.parent.name):
                wanted = json.loads(expected.read_text())["root_cause"]
                found = json.loads(self.ctl("doctor", "--json", root=expected.parent).stdout)
                conclusion = found["conclusion"]
                if wanted is None:  # no gate is shut: only the proof is missing, which a record cannot give
                    self.assertIs(found["proven"], False)
                    self.assertIn(conclusion and conclusion["verdict"], (None, "unknown"))
                else:
                    self.assertEqual((conclusion["check"], conclusion["verdict"]), (wanted, "fail"), conclusion["summary"])
                    self.assertIn(conclusion["by"], ("p2pd", "operator"))
                    self.assertTrue(conclusion["next"])


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
             ':4: .*check: no check is called "kernel-cmdlin"; did you mean "kernel-cmdline"'),
            ("unknown fix", plan_text(STEP.replace("fix: kernel-cmdline", "fix: rm")), ':4: .*fix: no fix is called "rm"'),
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

    def test_large_plans_are_refused_or_gone_on_with(self):
        """What is frozen into the run is larger than the plan, and must be read again after the reboot."""
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
        for words, pattern in (([], "."), (["frobnicate"], "^p2pctl: there is no verb"), (["docter"], "did you mean \"doctor\""), (["apply", "--frobnicate"], "frobnicate"), (["explain"], "STEP")):
            done = subprocess.run([P2PCTL, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
            with self.subTest(words=words):
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, pattern)
        self.assert_refused(self.ctl("explain", "gpu"), 'no step "gpu"')


class Roots(Case):
    def setUp(self):
        super().setUp()
        write(self.plan, plan_text() + "policy: {attempts: 1}\n")
        self.outside = self.scratch / "outside"
        write(self.outside / "secret", "root=/dev/vda iommu=pt\n")

    def test_bad_roots(self):
        for path, pattern in ((self.scratch / "absent", "absent.*No such file"), (self.plan, "Not a directory"), ("", ".")):
            with self.subTest(root=str(path)):
                done = subprocess.run([P2PCTL, "apply", self.plan, "--root", path], capture_output=True, text=True, timeout=60)
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
        self.assertNotEqual(self.json("doctor", self.plan, code=4)["steps"][0]["verdict"], "pass")


class State(Case):
    def test_a_tree_that_was_never_worked_on(self):
        self.assertIs(self.json("revert")["changed"], False)
        self.assertNotIn("changed", self.json("status"))
        for verb in ("pause", "resume", "retry", "cancel"):
            self.assert_refused(self.ctl(verb), "there is no run to " + verb)
        self.assertFalse(self.state.exists(), "nothing is made to say so")

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([P2PCTL, "doctor", self.plan, "--root", self.tree], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assert_refused(done, "cannot write")

    def test_database_is_a_directory(self):
        (self.state / "state.db").mkdir(parents=True)
        for verb in ("apply", "status", "history", "revert"):
            self.assert_refused(self.ctl(*[verb, self.plan][: 1 + (verb == "apply")]), "state.db is a directory")

    def damage(self, kind):
        database = self.state / "state.db"
        if kind == "newer":
            with sqlite3.connect(database) as connection:
                connection.execute("PRAGMA user_version=99")
            connection.close()
        elif kind == "not a database":
            database.write_bytes(os.urandom(8192))
        elif kind == "torn":
            content = bytearray(database.read_bytes())
            content[4096:8192] = b"\0" * 4096
            database.write_bytes(content)
        if kind != "newer":
            (self.state / "state.db-wal").write_bytes(b"")

    def test_unusable_database(self):
        for kind in ("newer", "not a database", "torn"):
            with self.subTest(kind=kind):
                self.fresh()
                self.apply_to_end()
                with sqlite3.connect(self.state / "state.db") as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.close()
                original, self.before = self.before, picture(self.tree)
                self.damage(kind)
                self.assert_refused(self.ctl("status"), "unusable")
                self.assertEqual(self.ctl("doctor").returncode, 4)  # nothing of it is needed to look
                for _ in range(2):
                    self.assert_refused(self.ctl("apply", self.plan), r"unusable .*state\.db\.set-aside")
                self.assertIs(self.json("apply", self.plan, "--accept-state-loss")["changed"], False)
                self.assertTrue(list(self.state.glob("state.db.lost-*")))
                self.before = original
                self.revert_to_end()

    def test_revert_without_a_database(self):
        self.apply_to_end()
        (self.state / "state.db").write_bytes(b"garbage" * 1000)
        self.revert_to_end()

    def test_damaged_undo_record(self):
        self.apply_to_end()
        record = next((self.state / "undo").glob("*.json"))
        for content in ("", "{", "[]", "{}", '{"path": 7}', '{"path": "/x", "run": "x"}', '{"path": "/x", "mode": "x"}'):
            with self.subTest(content=content):
                record.write_text(content)
                done = self.ctl("revert")
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stderr, r"\Ap2pctl: .*undo.*\n(  next: .*\n)?\Z")

    def test_something_else_in_the_state_directory(self):
        self.json("apply", self.plan)
        write(self.state / "undo/notes.json", "mine")
        write(self.state / "undo/README", "mine")
        self.assertIn(self.ctl("revert").returncode, (0, 1))

    def test_state_is_a_file(self):
        self.state.write_text("")
        self.assert_refused(self.ctl("apply", self.plan), "tree.p2pd")

    def mount(self, options, script, code=0):
        """Runs p2pctl apply in a mount namespace where the state directory is a small file system of its own."""
        self.state.mkdir(exist_ok=True)
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                               f'mount -t tmpfs -o {options} tmpfs "{self.state}" || exit 99; {script}', P2PCTL, self.plan,
                               self.tree], capture_output=True, text=True, timeout=60)
        if done.returncode == 99:
            self.skipTest("SKIP: mount is not allowed here")
        return done

    @needs_root
    def test_read_only_state(self):
        self.assert_refused(self.mount("ro", '"$0" apply "$1" --root "$2"'), "Read-only file system")
        done = self.mount("rw", f'"$0" apply "$1" --root "$2" >&2; mount -o remount,ro "{self.state}"; '
                                '"$0" status --root "$2"; "$0" history --root "$2"; "$0" apply "$1" --root "$2"')
        self.assertRegex(done.stdout, "rebooting .*takes effect with a reboot")
        self.assertRegex(done.stderr, "Read-only file system")

    @needs_root
    def test_full_disk_at_every_size(self):
        """The state directory holds ever more; each refusal leaves a tree that goes on, and back, once there is room."""
        outcomes = set()
        for pages in [*range(1, 40, 3), *range(40, 120, 8)]:
            with self.subTest(pages=pages):
                self.use("rtx4090-x2-am5")
                done = self.mount(f"rw,nr_blocks={pages}",
                                  '"$0" apply "$1" --root "$2"; echo "first $?"; '
                                  f'mount -o remount,nr_blocks=10000 "{self.state}"; '
                                  '"$0" apply "$1" --root "$2" --json >/dev/null; echo "then $?"; '
                                  '"$0" revert --root "$2" >/dev/null; echo "revert $?"')
                first = re.search(r"first (\d+)", done.stdout).group(1)
                outcomes.add(first)
                self.assertIn(first, "01")
                self.assertRegex(done.stdout, "then 0\nrevert 0\n", done.stderr)
                if first == "1":
                    self.assertRegex(done.stderr, "(?i)no space left|disk is full|disk full")
                self.assert_unchanged()
        self.assertEqual(outcomes, {"0", "1"}, "the sizes were all too small or all large enough")

    @needs_root
    def test_read_only_tree(self):
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                               'mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" || exit 99; "$0" apply "$1" --root "$2"',
                               P2PCTL, self.plan, self.tree], capture_output=True, text=True, timeout=60)
        if done.returncode == 99:
            self.skipTest("SKIP: mount is not allowed here")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("Read-only file system", done.stdout + done.stderr)
        self.assert_unchanged()


class OneAtATime(Case):
    def test_the_holder_of_the_lock_is_named(self):
        self.json("apply", self.plan)
        self.before = picture(self.tree)
        with open(self.state / "lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            holder = lock.read()
            self.assertRegex(holder, r"^p2pctl apply, process \d+$")
            for words in (["apply", self.plan], ["revert"], ["pause"]):
                self.assert_refused(self.ctl(*words), f"somebody else .*{holder}")
            for words in (["status"], ["history"], ["doctor"], ["plan"]):
                self.assertNotEqual(self.ctl(*words).returncode, 1)
        self.revert_at_once()

    def revert_at_once(self):
        self.assertEqual(self.ctl("revert").returncode, 0)

    def test_two_at_once(self):
        """Both started at the same time, several times: each ends well or is told about the other."""
        for _ in range(10):
            both = [subprocess.Popen([P2PCTL, "apply", self.plan, "--root", self.tree], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True) for _ in range(2)]
            said = [process.communicate(timeout=60)[1] for process in both]
            codes = sorted(process.returncode for process in both)
            self.assertIn(codes, ([0, 0], [0, 1]), said)
            for code, text in zip((process.returncode for process in both), said):
                if code:
                    self.assertIn("somebody else is at work here", text)
        boot(self.tree)
        self.assertEqual(self.json("apply", self.plan)["result"], "done")
        self.revert_to_end()


TOOL = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {  // grub-mkconfig and grub-script-check of an image, as a static program
  char buffer[4096];
  size_t count;
  (void)argc;
  if (strstr(argv[0], "script-check")) return 0;
  FILE* config = fopen("/boot/grub/new.cfg", "r");
  if (!config) {
    fclose(fopen("/started", "w"));
    for (;;) pause();
  }
  while ((count = fread(buffer, 1, sizeof buffer, config)) > 0) fwrite(buffer, 1, count, stdout);
  return 0;
}
"""
MENU = """set default=0
menuentry 'Debian' --id debian {
  linux /boot/vmlinuz root=/dev/vda ro %s
  initrd /boot/initrd.img
}
"""


class Stops(Case):
    """An image whose grub-mkconfig never ends."""

    def setUp(self):
        super().setUp()
        if not ROOT:
            self.skipTest("SKIP: needs root for chroot")
        tool = self.scratch / "tool"
        made = subprocess.run(["cc", "-static", "-x", "c", "-", "-o", tool], input=TOOL, text=True, capture_output=True)
        if made.returncode != 0:
            self.skipTest("SKIP: no static C library: " + made.stderr[-200:])
        (self.tree / "machine.json").unlink()
        for name in ("grub-mkconfig", "grub-script-check"):
            write(self.tree / "usr/sbin" / name, tool.read_bytes(), 0o755)
        for name in ("vmlinuz", "initrd.img"):
            write(self.tree / "boot" / name, name)
        write(self.tree / "boot/grub/grub.cfg", MENU % "quiet", 0o444)
        self.before = picture(self.tree)

    def start(self, *words):
        process = subprocess.Popen([P2PCTL, "apply", self.plan, "--root", self.tree, *words], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 20
        while not (self.tree / "started").exists():
            self.assertLess(time.monotonic(), deadline, "grub-mkconfig was not started")
            time.sleep(0.01)
        (self.tree / "started").unlink()
        return process

    def programs_of_the_image(self):
        found = []
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            try:
                found += [link] if os.readlink(link).startswith(str(self.tree)) else []
            except OSError:  # ended meanwhile, or a kernel thread
                pass
        return found

    def finish(self):
        write(self.tree / "boot/grub/new.cfg", MENU % "quiet iommu=pt")
        self.before["boot/grub/new.cfg"] = picture(self.tree)["boot/grub/new.cfg"]
        self.apply_to_end()
        self.assertIn("iommu=pt", (self.tree / "boot/grub/grub.cfg").read_text())
        self.revert_to_end()

    def test_sigterm_in_a_fix(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start()
            process.send_signal(number)
            out, error = process.communicate(timeout=20)
            self.assertNotEqual(process.returncode, 0, out)
            self.assertRegex(error, r"\Ap2pctl: .*(stop|ended).*\n(  next: .*\n)?\Z")
            self.assertEqual(self.json("status")["state"], "walking")
        self.finish()

    def test_sigterm_between_two_steps(self):
        """The signal waits, blocked, until p2pctl looks."""
        def send():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGTERM)
        done = self.ctl("apply", self.plan, preexec_fn=send)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, r"walking  stopped between two steps.*\n next  .*p2pctl apply")
        self.assert_unchanged()
        write(self.tree / "boot/grub/new.cfg", MENU % "quiet iommu=pt")
        self.assertEqual(self.json("apply", self.plan)["state"], "rebooting")
        done = self.ctl("revert", preexec_fn=send)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"reverting  stopped between two steps.*\n next  .*p2pctl revert")
        self.assertRegex(self.ctl("apply", self.plan).stderr, "reverting cannot apply\n  next: .*p2pctl revert")
        (self.tree / "boot/grub/new.cfg").unlink()
        self.revert_to_end()

    def test_sigkill_in_a_fix(self):
        process = self.start()
        self.assertEqual(len(self.programs_of_the_image()), 1)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while self.programs_of_the_image() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.programs_of_the_image(), [])
        self.finish()

    def test_second_apply_meets_a_busy_first(self):
        process = self.start()
        done = self.ctl("apply", self.plan)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"p2pctl apply, process {process.pid}", done.stderr)
        self.assertEqual(self.json("status")["state"], "walking")
        process.terminate()
        process.wait(timeout=20)
        self.finish()


@needs_root
class OtherUsers(Case):
    NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

    def setUp(self):
        super().setUp()
        if not shutil.which("setpriv"):
            self.skipTest("SKIP: no setpriv")
        if subprocess.run([*self.NOBODY, P2PCTL, "--version"], capture_output=True).returncode != 0:
            self.skipTest(f"SKIP: nobody cannot run {P2PCTL}")

    def test_reads_beside_a_killed_writer(self):
        for number in [*range(1, 40, 4), *range(40, 160, 12)]:
            self.fresh()
            self.ctl("apply", self.plan, before=[KILL_AT, str(number), "--"])
            for verb in ("status", "history"):
                with self.subTest(killed_before_call=number, verb=verb):
                    done = self.ctl(verb, before=self.NOBODY)
                    if done.returncode != 0:  # only while the database is made, before anything has run
                        self.assertIn("not complete yet", done.stderr)
                        self.assertLess(number, 40)

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
        self.assertEqual(self.ctl("status", before=self.NOBODY).returncode, 0)


class Printing(Case):
    ESCAPE = "\x1b"

    def on_terminal(self, *words, **environment):
        master, slave = pty.openpty()
        process = subprocess.Popen([P2PCTL, *map(str, words), "--root", self.tree], stdin=slave, stdout=slave, stderr=slave,
                                   env={**os.environ, "TERM": "xterm", **environment})
        os.close(slave)
        out = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            out += piece
        os.close(master)
        process.wait(timeout=60)
        return out.decode()

    def test_colour_only_on_a_terminal(self):
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        os.environ.pop("NO_COLOR", None)
        for words in (["doctor"], ["plan"], ["status"], ["history"], ["explain", "gpus"], ["apply", "absent"]):
            with self.subTest(words=words):
                done = self.ctl(*words, env=environment)
                self.assertNotIn(self.ESCAPE, done.stdout + done.stderr)
                self.assertNotIn(self.ESCAPE, self.on_terminal(*words, NO_COLOR="1"))
        self.assertIn(self.ESCAPE, self.on_terminal("doctor"))

    def test_a_closed_pipe_is_no_crash(self):
        done = subprocess.run(["sh", "-c", '"$0" doctor --root "$1" | true; "$0" doctor --root "$1" >/dev/full', P2PCTL,
                               self.tree], capture_output=True, text=True, timeout=60)
        self.assertGreaterEqual(done.returncode, 0)
        self.assertLess(done.returncode, 128, done.stderr)

    def test_control_characters_of_the_host_stay_off_the_terminal(self):
        boot(self.tree, "quiet \x1b[2Jevil")
        write(self.plan, plan_text(STEP, OPTIONS))
        for words in (["doctor"], ["doctor", self.plan], ["plan"], ["apply"], ["history"]):
            out = self.on_terminal(*words)
            self.assertNotIn("\x1b[2J", out, words)
        self.assertIn("quiet ?[2Jevil", self.on_terminal("doctor", self.plan))


if __name__ == "__main__":
    unittest.main()
