#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tasks side by side (tests/vm/side_by_side.py): order, what follows a failure, output, and that nothing outlives who asked for them."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VM = pathlib.Path(__file__).resolve().parents[1] / "vm"
sys.dont_write_bytecode = True
sys.path.insert(0, str(VM))
from side_by_side import Task, perform  # noqa: E402


class SideBySide(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name, "log")

    def task(self, name, after="", stands=True, seconds=0.0):
        def run():
            with self.log.open("a") as log:
                log.write(f"{name} ")
            time.sleep(seconds)
            print(f"{'ok' if stands else 'FAIL'} {name}", flush=True)
            return stands
        return Task(name, after, run)

    def performed(self, tasks, jobs, **rest):
        """Results, what was shown, and what ran in which order."""
        with tempfile.TemporaryFile("w+") as shown:
            kept = os.dup(1)
            try:
                sys.stdout.flush()
                os.dup2(shown.fileno(), 1)
                with contextlib.redirect_stdout(open(1, "w", closefd=False)):
                    results = perform(tasks, jobs, **rest)
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            shown.seek(0)
            return results, shown.read().splitlines(), self.log.read_text().split()

    def test_a_task_waits_for_what_it_begins_with(self):
        for jobs in (1, 2, 8):
            with self.subTest(jobs=jobs):
                self.log.unlink(missing_ok=True)
                tasks = [self.task("second", "first"), self.task("first", "made before", seconds=0.05), self.task("third", "second")]
                results, shown, order = self.performed(tasks, jobs)
                self.assertEqual(results, {"first": True, "second": True, "third": True})
                self.assertEqual(order, ["first", "second", "third"])
                self.assertEqual(shown, ["ok first", "ok second", "ok third"])

    def test_after_a_failure_its_followers_are_not_begun_and_fail(self):
        results, shown, order = self.performed([self.task("first", stands=False), self.task("second", "first"), self.task("third", "second"),
                                                self.task("other")], 2)
        self.assertEqual(results, {"first": False, "second": False, "third": False, "other": True})
        self.assertEqual(sorted(order), ["first", "other"])
        self.assertIn("FAIL second: not begun, since first failed", shown)
        self.assertIn("FAIL third: not begun, since second failed", shown)

    def test_a_task_that_dies_has_failed(self):
        results, _, _ = self.performed([self.task("fine"), Task("dies", "", lambda: os.kill(os.getpid(), signal.SIGKILL)),
                                        Task("raises", "", lambda: 1 / 0)], 3)
        self.assertEqual(results, {"fine": True, "dies": False, "raises": False})

    def test_no_more_than_asked_for_at_a_time(self):
        began = time.monotonic()
        results, _, _ = self.performed([self.task(str(number), seconds=0.3) for number in range(4)], 2)
        self.assertEqual(list(results.values()), [True] * 4)
        self.assertGreaterEqual(time.monotonic() - began, 0.6)

    def test_what_there_is_no_time_for_is_told(self):
        tasks = [self.task("first", seconds=0.5), self.task("second", "first"), self.task("third")]
        results, shown, order = self.performed(tasks, 1, within_s=0.2)
        self.assertEqual((results, order), ({"first": True}, ["first"]))
        self.assertEqual(shown, ["ok first", "not run: second, no time is left", "not run: third, no time is left"])

    def test_however_it_ends_its_tasks_end_in_order(self):
        program = f"""
import signal, sys, time
sys.path.insert(0, {str(VM)!r})
from side_by_side import Task, perform
def run():
    try:
        open({str(self.log)!r}, "a").write("begun ")
        time.sleep(60)
    finally:
        open({str(self.log)!r}, "a").write("ended ")
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
perform([Task("one", "", run), Task("two", "", run)], 2)
"""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with self.subTest(signal=number.name):
                self.log.write_text("")
                with subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                    self.wait("begun")
                    process.send_signal(number)
                    process.wait(20)
                self.wait("ended")

    def wait(self, word):
        deadline = time.monotonic() + 20
        while self.log.read_text().split().count(word) < 2 if self.log.exists() else True:
            self.assertLess(time.monotonic(), deadline, self.log.read_text())
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
