# SPDX-License-Identifier: MIT
"""Cards whose copies never arrive: the run fails within the plan's reboots, and is undone."""
from expected import expect_as_at_first
from scenario import UNATTENDED, expect, quirks

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = UNATTENDED | quirks({"faults": [{"kind": "dead-direction", "from": 0, "to": 1}]})


def run(machine):
    first = machine.first_view()
    status = machine.settle("failed")
    expect(status["reboots"] <= 5, f"{status['reboots']} reboots")
    expect("p2p-proven" in status["reason"], status["reason"])
    expect_as_at_first(machine.look("failed and undone"), first)
