#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What doctor, plan and catalogue show a person of the machines of today, line by line (cli/screens; diffs of files left out), and
that each of them is offered a driver that somebody built for its kernel, or told that p2pd builds it there first.

P2PD_BUILD: the build directory. P2PD_GOLDEN_UPDATE=1 writes the files.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "sim"), str(TESTS / "machines")]
from maker.todays_cases import todays_cases  # noqa: E402
from tree import MACHINES  # noqa: E402

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
SCREENS = TESTS / "cli/screens"
DIFF = re.compile(r"^ {6}(---|\+\+\+|@@|[-+ ]).*\n", re.MULTILINE)
NAMES = [machine.name for machine in todays_cases()]


def screen(record, verb):
    done = subprocess.run([P2PCTL, verb, "--root", MACHINES / record], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    text = re.sub(r"(?m)^(\d+ checks) in \d+ ms", r"\1", DIFF.sub("", done.stdout) + done.stderr)
    return f"$ p2pctl {verb}    # exit status {done.returncode}\n{text}\n"


class Screens(unittest.TestCase):
    maxDiff = None

    def test_every_line(self):
        for name in NAMES:
            with self.subTest(name):
                now = "".join(screen(name, verb) for verb in ("doctor", "plan", "catalogue"))
                file = SCREENS / f"{name}.txt"
                if "P2PD_GOLDEN_UPDATE" in os.environ:
                    file.write_text(now)
                before = file.read_text()
                self.assertEqual(now, before, "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), "before", "now")))

    def test_none_is_without_a_driver(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertNotIn("no driver fits", screen(name, "catalogue"))
                self.assertRegex(screen(name, "plan"), r"make -C .* modules KERNEL_UNAME=|✗  blackwell-options ")

    def test_no_file_without_its_machine(self):
        self.assertEqual(sorted(file.stem for file in SCREENS.iterdir()), sorted(NAMES))


if __name__ == "__main__":
    unittest.main()
