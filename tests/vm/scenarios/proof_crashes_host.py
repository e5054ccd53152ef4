# SPDX-License-Identifier: MIT
"""Cards that crash the host when they access each other: the proof is tried once more, then the run fails and is undone."""
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
    # for the swap, a crash, the second attempt, a crash; that boot already has the original command line, so the rollback needs no other
    expect(status["reboots"] == 4, f"{status['reboots']} reboots")
    expect_as_at_first(machine.look("failed and undone"), first)
