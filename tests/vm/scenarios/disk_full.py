# SPDX-License-Identifier: MIT
"""A disk with no room for a driver swap: blocked with the numbers; once there is room, the same request continues."""
from expected import expect_driver_kept
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"


def run(machine):
    with expect_driver_kept(machine):
        machine.run("fallocate -l $(($(df --output=avail -B1 / | tail -1) - 50000000)) /filler")
        status = machine.apply("blocked")
        expect("room" in status["reason"], status["reason"])
        machine.run("rm /filler")
