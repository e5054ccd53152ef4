# SPDX-License-Identifier: MIT
"""BAR1 is small at power-on, and so are the windows of the ports above: Linux makes them anew when the driver resizes BAR1. Ready, with
BAR1 whole and without pci=realloc."""
from scenario import expect, expect_ready, UNATTENDED

STARTS = "delivered"
CARDS = "two-ports-narrow"
SEED = UNATTENDED


def run(machine):
    machine.first_view()
    status = machine.settle("ready")
    expect_ready(machine, status)
    sizes = machine.run("grep -l 0x030000 /sys/bus/pci/devices/*/class | sed 's/class$/resource/' | xargs -n 1 sed -n 2p").split("\n")
    for start, end, _ in map(str.split, sizes):
        expect(int(end, 16) - int(start, 16) + 1 == 32 << 30, f"BAR1 is {start} to {end}")
    expect("pci=realloc" not in machine.run("cat /proc/cmdline"), "pci=realloc was added")
