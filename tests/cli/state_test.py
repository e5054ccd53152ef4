#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl and its state directory: damaged, read-only, full, or something else."""
import contextlib
import fcntl
import os
import pathlib
import re
import sqlite3
import subprocess
import unittest

from cli_case import Case, needs_root, OPTIONS, P2PCTL, plan_text, STEP
from tree import boot, picture, write


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

    @needs_root
    def test_nobody_else_can_hold_its_locks(self):
        """Also for a directory that an older version left open to all."""
        def mode(path):
            return oct(path.stat().st_mode & 0o7777)
        wanted = {".": "0o750", "lock": "0o600", "state.db": "0o640", "state.db-wal": "0o640", "state.db-shm": "0o640"}
        self.apply_to_end()
        self.assertEqual({name: mode(self.state / name) for name in wanted}, wanted)
        for name in wanted:
            (self.state / name).chmod(0o755 if name == "." else 0o644)
        self.json("apply", self.plan)
        self.assertEqual({name: mode(self.state / name) for name in wanted}, wanted)

    @needs_root
    def test_who_holds_the_lock_is_named(self):
        self.state.mkdir()
        (self.state / "lock").write_text("p2pctl apply, process 1")  # left by a worker that has ended
        with open(self.state / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_refused(self.ctl("apply", self.plan), rf"another process .*python3[^ ]*, process {os.getpid()} of user 0")

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
                self.assertEqual(self.ctl("doctor").returncode, 4)  # p2pctl doctor needs none of it
                for _ in range(2):
                    self.assert_refused(self.ctl("apply", self.plan), r"unusable .*state\.db\.set-aside")
                self.assertIs(self.json("apply", self.plan, "--accept-state-loss")["changed"], False)
                self.assertTrue(list(self.state.glob("state.db.lost-*")))
                self.before = original
                self.revert_to_end()

    def test_upgrade(self):
        """The state of schema 1, written during the same run of the same plan: the run continues after its reboot, and is undone."""
        for upgraded in ("apply", "revert"):
            with self.subTest(upgraded):
                self.fresh()
                write(self.plan, plan_text(OPTIONS, STEP))
                self.assertEqual(self.json("apply", self.plan)["state"], "rebooting")
                for file in self.state.glob("state.db*"):
                    file.unlink()
                with contextlib.closing(sqlite3.connect(self.state / "state.db")) as database:
                    database.executescript((pathlib.Path(__file__).parent / "state-1.sql").read_text())
                waits = self.json("status")
                self.assertEqual((waits["state"], [step["status"] for step in waits["steps"]]), ("rebooting", ["fixed", "pending-reboot"]))
                self.assertEqual(len(self.json("history")["events"]), 8)
                boot(self.tree)
                if upgraded == "apply":
                    done = self.json("apply", self.plan)
                    self.assertEqual((done["run"], done["result"]), (1, "done"))
                self.revert_to_end()

    def test_plan_with_unknown_words(self):
        """A journalled plan of another version: what only reads works, its run is not continued, cancel and revert undo it."""
        for ends in ("cancel", "revert"):
            for fresh_boot in (False, True):
                with self.subTest(ends, fresh_boot=fresh_boot):
                    self.fresh()
                    self.assertEqual(self.json("apply", self.plan)["state"], "rebooting")
                    with contextlib.closing(sqlite3.connect(self.state / "state.db")) as database, database:
                        database.execute("UPDATE runs SET resolved=replace(resolved, '\"gate\"', '\"of-later\"')")
                    if fresh_boot:
                        boot(self.tree)
                    original, self.before = self.before, picture(self.tree)
                    self.assertEqual(self.json("status")["state"], "rebooting")
                    self.assertTrue(self.json("history")["events"])
                    self.assert_refused(self.ctl("apply", self.plan), "run 1 of plan test.*of-later")
                    self.before = original
                    told = self.json(ends)
                    while told["state"] == "reverting":
                        boot(self.tree)
                        told = self.json("revert")
                    self.assertIn(told["result"], ("cancelled", "reverted"))
                    self.revert_to_end()

    def test_revert_without_a_database(self):
        self.apply_to_end()
        (self.state / "state.db").write_bytes(b"garbage" * 1000)
        self.revert_to_end()

    def test_database_is_gone(self):
        """Status tells of the changes that the undo records have, and revert undoes them."""
        self.apply_to_end()
        for file in self.state.glob("state.db*"):
            file.unlink()
        told = self.json("status")
        self.assertEqual((told["state"], told["reason"]), ("idle", "the record of runs is lost, and their changes are not undone"))
        self.assertIn("p2pctl revert", told["next"])
        self.revert_to_end()
        self.assertNotIn("lost", self.json("status")["reason"])

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
        self.assert_refused(self.mount("ro", '"$0" apply --yes "$1" --root "$2"'), "Read-only file system")
        done = self.mount("rw", f'"$0" apply --yes "$1" --root "$2" >&2; mount -o remount,ro "{self.state}"; '
                                '"$0" status --root "$2"; "$0" history --root "$2"; "$0" apply --yes "$1" --root "$2"')
        self.assertRegex(done.stdout, "rebooting .*takes effect with a reboot")
        self.assertRegex(done.stderr, "Read-only file system")

    @needs_root
    def test_full_disk_at_every_size(self):
        """The state directory gets larger step by step; each refusal leaves a tree that can be applied and reverted once there is room."""
        outcomes = set()
        for pages in [*range(1, 40, 3), *range(40, 120, 8)]:
            with self.subTest(pages=pages):
                self.use("rtx4090-x2-am5")
                done = self.mount(f"rw,nr_blocks={pages}",
                                  '"$0" apply --yes "$1" --root "$2"; echo "first $?"; '
                                  f'mount -o remount,nr_blocks=10000 "{self.state}"; '
                                  '"$0" apply --yes "$1" --root "$2" --json >/dev/null; echo "then $?"; '
                                  '"$0" revert --yes --root "$2" >/dev/null; echo "revert $?"')
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
                               'mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" || exit 99; "$0" apply --yes "$1" --root "$2"',
                               P2PCTL, self.plan, self.tree], capture_output=True, text=True, timeout=60)
        if done.returncode == 99:
            self.skipTest("SKIP: mount is not allowed here")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("Read-only file system", done.stdout + done.stderr)
        self.assert_unchanged()


if __name__ == "__main__":
    unittest.main()
