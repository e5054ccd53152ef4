# SPDX-License-Identifier: MIT
"""A person at a terminal: apply asks, Ctrl-C leaves the run alone, the live display ends at the restart, verify names edited files.

SCREENS holds what doctor, plan and status show at each stage; P2PD_GOLDEN_UPDATE=1 writes it.
"""
import os
import pathlib
import re

from expected import expect_as_at_first, expect_ready
from scenario import expect
from scenarios.keep_userspace import SEED as KEEP

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = {"/root/seed": KEEP["/root/seed"], "/etc/p2pd/p2pd.yaml": "plan: geforce-p2p\nreboot_delay_s: 20\n"}
SCREENS = pathlib.Path(__file__).resolve().parents[2] / "cli/screens/rehearsal.txt"
VARIES = ((r"\b\d\d:\d\d(:\d\d)?\b", "TIME"), (r"\b20\d\d-\d\d-\d\d\b", "DATE"), (r"\d+(\.\d+)?(?= (GB/s|MiB|us|%|s|min)\b)", "N"), (r"\bx\d+\.\d+", "xN"), (r"\b\d+ %", "N %"),
          (r"6\.1\.0-\d+-amd64", "6.1.0-N-amd64"))
OPTIONS = "/etc/modprobe.d/zz-p2pd.conf"


class Screens:
    """Screens of p2pctl commands, at each width; values that differ from run to run are replaced with a word."""

    def __init__(self, machine):
        self.machine, self.text = machine, ""

    def show(self, stage, *verbs):
        for verb in verbs:
            for columns in (60, 80, 120):
                code, shown = self.machine.typed(f"NO_COLOR=1 p2pctl {verb}", columns=columns)
                lines = [line.rstrip() for line in shown.splitlines() if not line.startswith("Connection to ")]
                wide = [line for line in lines if len(line) > columns]
                expect(len(lines) < 24 and not wide, f"{verb} takes {len(lines)} lines, {wide}: {shown}")
                self.text += f"# {stage}, {columns} columns\n$ p2pctl {verb}    # exit status {code}\n" + "\n".join(lines) + "\n\n"

    def compare(self):
        if "P2PD_GOLDEN_UPDATE" in os.environ:
            SCREENS.write_text(self.text)
        now, wanted = (self.words(text) for text in (self.text, SCREENS.read_text()))
        for mine, right in zip(now, wanted):
            expect(mine == right, f"shown: {mine}\nwanted: {right}")
        expect(len(now) == len(wanted), f"{len(now)} screens, {len(wanted)} are known")

    @staticmethod
    def words(text):
        for pattern, name in VARIES:
            text = re.sub(pattern, name, text)
        return [re.sub(r"\s+", " ", one) for one in text.split("\n\n# ")]


def run(machine):
    machine.wait_boot()
    first, screens = machine.look("at first"), Screens(machine)
    screens.show("delivered", "doctor", "plan", "status")
    code, shown = machine.typed("p2pctl apply", ("Apply this? [y/N]", "n\r"))
    expect(code == 1 and "Nothing was changed." in shown, f"status {code}: {shown}")
    expect(machine.status()["run"] == 0, "a run began")
    code, shown = machine.typed("p2pctl apply", ("Apply this? [y/N]", "y\r"), ("Ctrl-C detaches", "\x03"))
    expect(re.search(r"the run continues", shown), f"status {code}: {shown}")
    expect(machine.status()["state"] == "walking", "Ctrl-C stopped the run")
    code, shown = machine.typed("p2pctl status --watch")
    expect(code == 0 and re.search(r"geforce-p2p \[#*-+\] \d+ of \d+ to do, .*\n  (checking|fixing) [a-z-]+: ", shown), f"status {code}: {shown}")
    expect("A restart is due: " in shown, f"the restart is not shown: {shown}")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    screens.show("ready", "doctor", "plan", "status")
    code, shown = machine.typed("p2pctl apply")
    expect(code == 0 and "[y/N]" not in shown, f"status {code}: {shown}")
    code, shown = machine.typed("p2pctl verify")
    expect(code == 0 and "Everything is as p2pd left it." in shown, f"status {code}: {shown}")
    machine.run(f"echo '# mine' >> {OPTIONS}")
    code, shown = machine.typed("p2pctl verify")
    expect(code == 2 and f"{OPTIONS} was changed since" in shown, f"status {code}: {shown}")
    status = machine.turn_back("idle")
    notes = [step["summary"] for step in status["steps"] if step["status"] == "reverted" and step["summary"]]
    expect(any(OPTIONS in note for note in notes), f"revert does not name {OPTIONS}: {notes}")
    screens.show("reverted", "doctor", "status")
    expect_as_at_first(machine.look("reverted"), first)
    screens.compare()
