# SPDX-License-Identifier: MIT
"""The right modules, loaded by hand with a registry key that selects the mailbox, and without their options: the proof fails, and they
are reloaded, without a reboot."""
from expected import expect_ready
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    boot = machine.wait_boot()
    machine.run("systemctl stop nvidia-persistenced; rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; "
                "insmod /usr/lib/modules/$(uname -r)/updates/dkms/nvidia.ko NVreg_RegistryDwords=RMForceP2PType=1; modprobe nvidia-modeset; modprobe nvidia-drm; modprobe nvidia-uvm")
    expect("EnableResizableBar: 0" in machine.run("cat /proc/driver/nvidia/params"), "the option is in force")
    status = machine.apply("ready")
    expect(machine.wait_boot() == boot, "it was rebooted")
    expect("EnableResizableBar: 1" in machine.run("cat /proc/driver/nvidia/params"), "the option is not in force")
    expect_ready(machine, status)
