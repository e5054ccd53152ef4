# SPDX-License-Identifier: MIT
"""A person at a terminal: apply asks, Ctrl-C leaves the run alone, the live picture ends at the restart, verify names what was edited."""
import re

from scenario import expect, expect_as_at_first, expect_ready
from scenarios.keep_userspace import SEED as KEEP

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = {"/root/seed": KEEP["/root/seed"], "/etc/p2pd/p2pd.yaml": "plan: geforce-p2p\nreboot_delay_s: 20\n"}
OPTIONS = "/etc/modprobe.d/zz-p2pd.conf"


def run(machine):
    machine.wait_boot()
    first = machine.look("at first")
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
    expect_as_at_first(machine.look("reverted"), first)
