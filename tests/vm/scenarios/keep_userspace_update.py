# SPDX-License-Identifier: MIT
"""The distribution offers a newer driver: status, motd and metrics say so, one command installs it, and revert restores the old one."""
from expected import expect_ready
from scenario import expect, say

STARTS = "keep-userspace"
CARDS = "two-behind-switch"
OLD, NEW = "570.123.11", "570.133.11"
NOTE = f"driver {NEW} is offered, and driver-world/{NEW}-p2p has its modules"


def versions(machine):
    """Versions of the driver's packages, modules and libraries."""
    packages = {line.split()[1].split("-")[0] for line in machine.packages() if line.startswith(("nvidia-driver ", "libcuda1 ", "nvidia-kernel-open-dkms "))}
    return packages | {machine.run("cat /sys/module/nvidia/version"), machine.run("readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1").rsplit(".so.")[1]}


def run(machine):
    machine.wait_boot()
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect(versions(machine) == {OLD}, f"at first: {versions(machine)}")
    for what in ("p2pctl status", "cat /run/motd.d/p2pd-notes", "p2pctl metrics"):
        told = machine.ssh(what).stdout  # status exits with 3 while a proof is open
        expect(NOTE in told, f"{what} does not tell of the update: {told}")
    say(machine.run("p2pctl plan driver-update"))
    status = machine.apply("ready", plan="driver-update")
    expect_ready(machine, status)
    expect(versions(machine) == {NEW}, f"after the update: {versions(machine)}, {status['reboots']} reboots")
    expect("nvidia" not in machine.run("apt-get --simulate full-upgrade"), "apt would change the driver once more")
    expect("is offered" not in machine.ssh("p2pctl status").stdout, "status still tells of an update")
    machine.turn_back("idle")
    expect(versions(machine) == {OLD}, f"after revert: {versions(machine)}")
