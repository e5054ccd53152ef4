# SPDX-License-Identifier: MIT
"""The power is cut in the middle of a revert, while neither driver is installed: the next boot finishes it."""
import contextlib

from expected import expect_as_at_first
from guest import GuestError
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    boot = machine.wait_boot()
    machine.run("p2pctl revert --yes --no-block")

    def undone():
        with contextlib.suppress(GuestError):
            return any((event["type"], event["step"]) == ("undone", "new-userspace") for event in machine.told("history")["events"])
        return False
    machine.until(undone, "the new driver is not removed", 1200, 0.5)
    machine.cut_power()
    machine.wait_boot(after=boot)
    status = machine.settle("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect_as_at_first(machine.look("reverted"), machine.notes["first"])
    loaded = machine.run("cat /sys/module/nvidia/version")
    expect(loaded == "570.123.11", f"the loaded driver is {loaded}")
