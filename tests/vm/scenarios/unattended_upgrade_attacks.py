# SPDX-License-Identifier: MIT
"""apt is asked for a newer distribution driver, and for a full upgrade: it installs no driver, and the machine stays ready."""
from expected import expect_ready
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"
ATTACKS = ("apt-get -y install nvidia-driver", "apt-get -y install libcuda1", "apt-get -y full-upgrade")


def run(machine):
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    machine.run("apt-get --quiet=2 update", 120)
    for attack in ATTACKS:
        machine.ssh(attack, 600)  # refused, or done without the driver
    drivers = machine.run("dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' '*nvidia*' 'libcuda1' 2>/dev/null | awk '$2 == \"ii\" {print $1}'")
    expect(set(drivers.split()) <= {"nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools"},
           f"apt brought {drivers}")
    expect_ready(machine, machine.status())
