# SPDX-License-Identifier: MIT
"""Revert on a machine that kept its packages: their own modules are loaded again, and the tree is as it was delivered."""
from expected import expect_as_at_first
from scenario import expect

STARTS = "keep-userspace"
CARDS = "two-behind-switch"


def run(machine):
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect_as_at_first(machine.look("reverted"), machine.notes["first"])
    file = machine.run("modinfo -F filename nvidia-current-open")
    expect(file.endswith("updates/dkms/nvidia-current-open.ko"), f"modprobe would load {file}")
    expect(machine.run("cat /sys/module/nvidia/version") == "570.123.11", "the packages' driver is not loaded")
