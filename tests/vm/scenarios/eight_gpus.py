# SPDX-License-Identifier: MIT
"""Eight cards on two sockets become ready: all of their 56 ordered pairs, on one socket and across."""
from expected import expect_ready
from scenario import UNATTENDED, expect

STARTS = "delivered"
CARDS = "eight-two-sockets"
SEED = UNATTENDED


def run(machine):
    nodes = machine.run("grep -l 0x030000 /sys/bus/pci/devices/*/class | sed 's/class$/numa_node/' | xargs cat").split()
    expect(len(nodes) == 8 and nodes.count("1") == 4, f"the cards are on the NUMA nodes {' '.join(nodes)}")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    proof = next(step for step in status["steps"] if step["id"] == "p2p-proven")
    expect("56 ordered pairs" in proof["summary"], f"it is proven for others: {proof['summary']}")
