# SPDX-License-Identifier: MIT
"""Revert on a ready machine: the distribution's driver is loaded again, and the tree is as it was delivered."""
from expected import expect_as_at_first
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    boot = machine.wait_boot()
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect(machine.wait_boot() != boot, "what was undone wants a reboot")
    expect_as_at_first(machine.look("reverted"), machine.notes["first"])
    loaded = machine.run("cat /sys/module/nvidia/version")
    expect(loaded == "570.123.11", f"the loaded driver is {loaded}")
