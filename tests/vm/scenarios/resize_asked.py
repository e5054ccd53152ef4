# SPDX-License-Identifier: MIT
"""BAR1 is small at power-on, and the fork resizes it only where it is asked to, of which its entry says nothing: ready, BAR1 whole."""
from scenario import catalogue_drop_in, expect, expect_ready, UNATTENDED

STARTS = "delivered"
CARDS = "two-ports-small-bar1"
SEED = UNATTENDED | catalogue_drop_in("asks")


def run(machine):
    machine.first_view()
    status = machine.settle("ready")
    expect_ready(machine, status)
    sizes = machine.run("grep -l 0x030000 /sys/bus/pci/devices/*/class | sed 's/class$/resource/' | xargs -n 1 sed -n 2p").split("\n")
    for start, end, _ in map(str.split, sizes):
        expect(int(end, 16) - int(start, 16) + 1 == 32 << 30, f"BAR1 is {start} to {end}")
