#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Output of doctor, plan and catalogue on the machines of today, line by line (cli/screens), with every check and command on one of them.
On every machine record, plan and doctor fit on one screen, and doctor says there what to do first. Each machine of today is offered a
driver that somebody built for its kernel, or a build by p2pd first. README.md shows one of these screens.

P2PD_BUILD: the build directory. P2PD_GOLDEN_UPDATE=1 writes the files.
"""
import difflib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "sim"), str(TESTS / "machines")]
from bench_case import BENCH, BUILD, SAMPLED, fault, gpu_addresses, machine  # noqa: E402
from cli_case import prove  # noqa: E402
from maker.todays_cases import todays_cases  # noqa: E402
from terminal import on_terminal  # noqa: E402
from tree import MACHINES, boot  # noqa: E402

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
SCREENS = TESTS / "cli/screens"
DIFF = re.compile(r"^ {6}(---|\+\+\+|@@|[-+ ]).*\n", re.MULTILINE)
NAMES = [machine.name for machine in todays_cases()]
ROWS, COLUMNS = 24, 80
WIDTHS = (60, 80, 120)
PIPED = 0  # no terminal, whatever the width
# the owner's first action, which the first screen must name
FIRST = {
    "no-gpu": "seated and powered", "rtx2080ti-x2": "RTX 30 series or newer", "rtx4090-x2-guest-fedora": "On the host, give these GPUs the same clique",
    "rtx4090-x2-above4g-off": '"Above 4G Decoding"', "rtx4090-x2-display": "Plug the monitor",
    "rtx4090-x2-dpkg-broken": "dpkg --configure -a", "rtx4090-x2-healthy": "sudo p2pctl apply", "rtx4090-x2-link-x4": "7.9 of 31.5 GB/s",
    "rtx4090-x2-secure-boot": "mokutil --import", "rtx4090-x2-vfio": "Take 0000:02:00.0 out of the guest",
    "rtx5090-x3-display": "0000:01:00.0 is alone: it drives card0-DP-1",
    "rtxpro6000-x4-iommu-acs": "An IOMMU that translates answers with faults or zeros",
    "rtx4090-x2-uki": "(1 reboot)", "rtx4090-x2-proxmox": "(1 reboot)", "rtx4090-x2-proxmox-grub": "sudo proxmox-boot-tool refresh",
    "rtx3090-rtx4090-driver-ok": "Use two cards of one generation", "rtx3090-rtx4090-mixed": "Use two cards of one generation",
    "ubuntu26-rtx4090-x2-nova-refuses": "sudo p2pctl apply", "rtx5060ti-x2-first-day": "sudo p2pctl apply",
    "rtx4090-x2-other-firmware": "sudo p2pctl apply", "rtx4090-x2-foreign-570-cns": "sudo p2pctl apply",
    "rtx3090-x4-one-small-bar1": "sudo p2pctl apply", "rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000": "sudo p2pctl apply", "ubuntu26-rtx4090-x2-nova": "(1 reboot)",
    "rtx4090-x2-first-day": "one visit", "rtx5090-x2-xid79": "Power the machine off and on", "ubuntu24-hwe-desktop-rtx4090-x2": "(1 reboot)",
}
SHOWN, READY = "ubuntu24-hwe-desktop-rtx4090-x2", "rtx4090-x2-healthy"  # SHOWN: in README.md
CAPTURED = sorted((TESTS / "machines/captured").glob("*.json"))
MADE = sorted(record for record in MACHINES.iterdir() if record.is_dir())


def screen(record, *words):
    done = subprocess.run([P2PCTL, *words, "--root", MACHINES / record], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    return f"$ p2pctl {' '.join(words)}    # exit status {done.returncode}\n{DIFF.sub('', done.stdout)}{done.stderr}\n"


def screen_of_terminal(record, *words, columns=COLUMNS):
    """The same on a terminal."""
    status, text = on_terminal([P2PCTL, *words, "--root", MACHINES / record], rows=ROWS, columns=columns, stdin=subprocess.DEVNULL,
                               env=os.environ | {"NO_COLOR": "1"})
    return f"$ p2pctl {' '.join(words)}    # exit status {status}\n{text.replace(chr(13), '')}\n"


def measured(record, directory):
    """The line of a proof of P2P between simulated cards in the slots of a record, with the gain over cards without P2P."""
    before = pathlib.Path(directory, "baseline.json")
    for faults, words in (([fault("no-peer"), fault("no-peer", **{"from": 1, "to": 0})], ["--save", before]), ([], ["--against", before])):
        file = pathlib.Path(directory, "simulated.json")
        file.write_text(json.dumps(machine(2, gpu_addresses(record), faults=faults)))
        done = subprocess.run([BENCH, "--json", *words, "--root", MACHINES / record], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                              env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "sim"), "P2PD_SIM_CUDA": str(file)})
        report = json.loads(done.stdout)
    return "; ".join([report["judgement"]["summary"], report["gain"][-1]])


def ready(record):
    """Output of doctor on a record, at each width, once P2P is proven there."""
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory, record)
        shutil.copytree(MACHINES / record, tree, symlinks=True)
        boot(tree)
        prove(tree, ["copies", "nccl", "custom-all-reduce"], summary=measured(record, directory))
        return {columns: screen_of_terminal(tree, "doctor", columns=columns) for columns in WIDTHS}


class Screens(unittest.TestCase):
    maxDiff = None

    def compare(self, file, now):
        if "P2PD_GOLDEN_UPDATE" in os.environ:
            (SCREENS / file).write_text(now)
        before = (SCREENS / file).read_text()
        self.assertEqual(now, before, "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), "before", "now")))

    def test_every_line(self):
        details = f"# {NAMES[0]}\n" + screen(NAMES[0], "doctor", "--all") + screen(NAMES[0], "plan", "--diff")
        self.compare("plan.txt", "".join(f"# {name}\n{screen_of_terminal(name, 'plan')}" for name in NAMES) + details
                     + "".join(f"# {name}\n{screen(name, 'catalogue')}" for name in NAMES))

    def test_none_is_without_a_driver(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertNotIn("no driver fits", screen(name, "catalogue"))
                self.assertRegex(screen(name, "plan", "--diff"), r"make -C .* modules KERNEL_UNAME=|->  (blackwell|mailbox)-options ")

    def test_one_screen(self):
        """With the prompt below it."""
        for number, record in enumerate(MADE + CAPTURED):
            for verb, columns in itertools.product(("plan", "doctor"), [WIDTHS[number % len(WIDTHS)]] if SAMPLED else WIDTHS):
                with self.subTest(record.name, verb=verb, columns=columns):
                    shown = screen_of_terminal(record, verb, columns=columns).splitlines()[1:-1]
                    self.assertLess(len(shown), ROWS, "\n".join(shown))
                    # a kernel argument that the owner copies stays whole
                    self.assertEqual([line for line in shown if len(line) > columns and len(line.split()) > 1], [])

    def test_doctor_says_what_to_do(self):
        now = ""
        for name in sorted({*NAMES, *FIRST}):
            for columns in (*WIDTHS, PIPED) if name in FIRST else [COLUMNS]:
                shown = screen_of_terminal(name, "doctor", columns=columns) if columns else screen(name, "doctor")
                self.assertIn(FIRST.get(name, ""), re.sub(r"\s+", " ", shown))
                now += f"# {name}, {f'{columns} columns' if columns else 'piped'}\n{shown}"
        proven = ready(READY)
        for columns, shown in proven.items():
            self.assertIn("P2P: READY", shown)
            self.assertEqual([line for line in shown.splitlines() if len(line) > columns], [])
            now += f"# {READY} once P2P is proven, {columns} columns\n{shown}"
        self.compare("doctor.txt", now)
        in_readme = re.findall(r"^    \$ p2pctl doctor\n((?:    .*\n)+)", (TESTS.parent / "README.md").read_text(), re.M)
        shown = screen_of_terminal(SHOWN, "doctor").split("\n", 1)[1].rstrip("\n") + "\n"
        self.assertEqual([re.sub("^    ", "", text, flags=re.M) for text in in_readme], [shown])



if __name__ == "__main__":
    unittest.main()
