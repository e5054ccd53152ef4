# SPDX-License-Identifier: MIT
"""BAR1 is small at power-on, and the fork resizes it only on request, which its entry does not mention: ready, BAR1 whole."""
from expected import expect_ready, expect_whole_bar1
from scenario import catalogue_drop_in, UNATTENDED

STARTS = "delivered"
CARDS = "two-ports-small-bar1"
SEED = UNATTENDED | catalogue_drop_in("asks")


def run(machine):
    machine.first_view()
    status = machine.settle("ready")
    expect_ready(machine, status)
    expect_whole_bar1(machine)
