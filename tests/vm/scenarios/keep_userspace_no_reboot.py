# SPDX-License-Identifier: MIT
"""The packages stay, and boot line and initramfs are already right: the modules are replaced, and P2P proven, without a reboot."""
import re

from expected import expect_ready, expect_same_packages
from scenario import expect
from scenarios.keep_userspace import SEED as KEEP, expect_beside_packages

STARTS = "delivered"
CARDS = "two-behind-switch"
ARGUMENTS = r'iommu=pt \"pci=disable_acs_redir=0000:02:00.0;0000:02:01.0\"'  # GRUB ends a command at a semicolon without quotes
SEED = {
    "/root/seed": KEEP["/root/seed"],
    "/etc/default/grub.d/host.cfg": f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {ARGUMENTS}"\n',
}


def run(machine):
    machine.wait_boot()
    machine.run("update-grub && update-initramfs -u", 900)  # the initramfs had nouveau; the driver's package blacklists it
    machine.restart()
    first, before = machine.look("at first"), machine.packages()
    plan = machine.told("plan")
    expect(plan["changes"] and not plan["blocked"] and plan["reboots"] == 0, f"the plan: {plan}")
    screen = machine.ssh("p2pctl plan").stdout
    expect(re.search(r"^ *reboots +0 expected", screen, re.M), f"p2pctl plan does not say how many reboots are expected: {screen}")
    status = machine.apply("ready")
    expect(status["reboots"] == 0, f"{status['reboots']} reboots")
    ready = machine.look("ready")
    expect(ready.boot == first.boot and ready.cmdline == first.cmdline, "it was rebooted")
    expect_ready(machine, status)
    expect_beside_packages(machine)
    expect_same_packages(machine.packages(), before)
    expect(machine.run("systemctl is-active nvidia-persistenced") == "active", "nvidia-persistenced does not run")
    machine.restart()
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_ready(machine, machine.status())
    expect_beside_packages(machine)
