# SPDX-License-Identifier: MIT
"""An image with p2pd in it, the distribution's driver, nouveau, an IOMMU and ACS on, becomes ready by itself, with one reboot."""
from expected import expect_ready
from scenario import UNATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
OLD_CDI = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices: [{name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]
containerEdits: {mounts: [{containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.123.11, hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.123.11}]}
"""
SEED = UNATTENDED | {"/etc/cdi/nvidia.yaml": OLD_CDI}


def run(machine):
    first = machine.first_view()
    expect("nouveau" in machine.run("lsmod"), "nouveau is not loaded: there is nothing to keep it from")
    defaults = machine.run("sha256sum /etc/default/grub 2>&1 || true")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    expect(machine.run("sha256sum /etc/default/grub 2>&1 || true") == defaults, "/etc/default/grub was written")
    proof = next(step for step in status["steps"] if step["id"] == "p2p-proven")
    expect("gain" in proof["summary"], f"nothing to compare with: {proof['summary']}")
    expect("nouveau" not in machine.run("lsmod"), "nouveau is loaded")
    expect("EnableResizableBar: 1" in machine.run("cat /proc/driver/nvidia/params"), "the module runs without its option")
    expect(machine.run("systemctl is-active nvidia-persistenced") == "active", "nvidia-persistenced does not run")
    expect("570.148.11" in machine.run("cat /etc/cdi/nvidia.yaml"), "the CDI file is of the old driver")
    machine.note_ready(first)
