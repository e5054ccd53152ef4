# SPDX-License-Identifier: MIT
"""A board on which passthrough is not enough: the proof fails, the IOMMU is turned off, the proof passes."""
from expected import expect_ready
from scenario import UNATTENDED, expect, quirks

STARTS = "delivered"
CARDS = "two-ports"
SEED = UNATTENDED | quirks({"gates": {"iommu": "absent"}})


def run(machine):
    status = machine.settle("ready")
    expect(status["reboots"] == 2, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    expect("intel_iommu=off" in machine.run("cat /proc/cmdline").split(), "the IOMMU was not turned off")
    expect(machine.run("ls /sys/class/iommu") == "", "an IOMMU is in force")
