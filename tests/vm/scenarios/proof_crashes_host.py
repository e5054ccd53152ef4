# SPDX-License-Identifier: MIT
"""Cards that take the host down when they meet: the proof is tried once more, then the run has failed and is undone."""
from expected import expect_as_at_first
from scenario import UNATTENDED, expect, quirks

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = UNATTENDED | quirks({"crash": 9})


def run(machine):
    first = machine.first_view()
    status = machine.settle("failed")
    expect("crashed the machine" in status["reason"], status["reason"])
    expect(machine.console().count("Kernel panic") == 2, f"{machine.console().count('Kernel panic')} panics instead of two")
    # for the swap, a crash, the second attempt, a crash; that boot has the first command line already, so undoing wants no other
    expect(status["reboots"] == 4, f"{status['reboots']} reboots")
    expect_as_at_first(machine.look("failed and undone"), first)
