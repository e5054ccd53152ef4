# SPDX-License-Identifier: MIT
"""RTX 50 with its distribution's driver of 580 or newer: options of that driver give P2P, and no module or package is replaced."""
from expected import expect_as_at_first
from scenario import expect, say

STARTS = "delivered"
CARDS = "two-blackwell"
NEWER = "595.123.11"
WORDS = ("ForceP2P", "RMPcieP2PType", "RMForceStaticBar1")


def install_newer_driver(machine):
    """As a person does: an archive, an upgrade, a restart."""
    machine.wait_boot()
    machine.run("echo 'deb [trusted=yes] file:///srv/driver-world/apt/debian-new bookworm contrib non-free non-free-firmware' "
                "> /etc/apt/sources.list.d/newer.list && apt-get --quiet=2 update", 300)
    say(machine.run("DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 -y full-upgrade 2>&1 | tail -2", 2400))
    machine.restart()
    expect(machine.run("cat /sys/module/nvidia/version") == NEWER, "the newer driver is not loaded")


def keys_in_force(machine):
    params = machine.run("cat /proc/driver/nvidia/params")
    return [word for word in WORDS if word in params]


def run(machine):
    install_newer_driver(machine)
    first, packages = machine.look("with the newer driver"), machine.packages()
    module = machine.run("modinfo -F filename nvidia-current-open; cat /sys/module/nvidia/srcversion")
    status = machine.apply("ready")
    expect(keys_in_force(machine) == list(WORDS), f"in force: {keys_in_force(machine)}")
    expect(machine.packages() == packages, "packages were changed")
    expect(machine.run("modinfo -F filename nvidia-current-open; cat /sys/module/nvidia/srcversion") == module, "another module is loaded")
    say(f"{status['reason']}, {status['reboots']} reboots")
    machine.restart()
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect(machine.status()["state"] == "ready", "it is not ready at the next boot")
    machine.turn_back("idle")
    expect_as_at_first(machine.look("reverted"), first)
