# SPDX-License-Identifier: MIT
"""BAR1 is small at power-on, and so are the windows of the ports above: Linux reassigns them when the driver resizes BAR1. Ready, with
BAR1 whole and without pci=realloc."""
from expected import expect_ready, expect_whole_bar1
from scenario import expect, UNATTENDED

STARTS = "delivered"
CARDS = "two-ports-narrow"
SEED = UNATTENDED


def run(machine):
    machine.first_view()
    status = machine.settle("ready")
    expect_ready(machine, status)
    expect_whole_bar1(machine)
    expect("pci=realloc" not in machine.run("cat /proc/cmdline"), "pci=realloc was added")
