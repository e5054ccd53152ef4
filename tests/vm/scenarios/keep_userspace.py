# SPDX-License-Identifier: MIT
"""A build has the version of the distribution's packages: they stay, only modules are replaced, and no upgrade separates them."""
from expected import expect_ready, expect_same_packages
from scenario import UNATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = UNATTENDED | {"/root/seed": (0o755, "#!/bin/sh\ncp /srv/driver-world/catalogue/keep.yaml /etc/p2pd/catalogue.d/driver-world.yaml\n")}
VERSION = "570.123.11"
PLACE = "updates/p2pd/nvidia-current-open.ko"


def expect_beside_packages(machine):
    loaded = machine.run("cat /sys/module/nvidia/version")
    expect(loaded == VERSION, f"the loaded driver is {loaded}")
    file = machine.run("modinfo -F filename nvidia-current-open")
    expect(file.endswith(PLACE), f"modprobe would load {file}")


def run(machine):
    first, before = machine.first_view(), machine.packages()
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    expect_beside_packages(machine)
    expect_same_packages(machine.packages(), before)
    machine.note_ready(first)
    machine.run("apt-get --quiet=2 update", 120)
    for attack in ("apt-get -y full-upgrade", "unattended-upgrade"):
        machine.ssh(attack, 900)
    expect("nvidia" not in str(set(machine.packages()) ^ set(before)), "an upgrade changed the driver")
    expect_ready(machine, machine.status())
