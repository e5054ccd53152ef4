# SPDX-License-Identifier: MIT
"""While the trial entry is armed, the clock goes back by a year, and the power is cut: the trial boot comes, and becomes ready."""
from expected import expect_ready
from scenario import ATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = ATTENDED


def run(machine):
    first = machine.first_view()
    machine.arm()
    boot = machine.wait_boot()
    machine.set_clock_back()
    machine.cut_power()
    machine.wait_boot(after=boot)
    expect(machine.is_trial(), "the armed entry was not booted")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    machine.turn_back_to(first)
