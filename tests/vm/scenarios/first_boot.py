# SPDX-License-Identifier: MIT
"""An image with p2pd in it, the distribution's driver, nouveau, an IOMMU and ACS on, becomes ready by itself, with one reboot."""
from scenario import UNATTENDED, expect, expect_ready

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = UNATTENDED


def run(machine):
    first = machine.first_view()
    defaults = machine.run("sha256sum /etc/default/grub")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    expect(machine.run("sha256sum /etc/default/grub") == defaults, "/etc/default/grub was written")
    machine.views["first-boot"] = first
