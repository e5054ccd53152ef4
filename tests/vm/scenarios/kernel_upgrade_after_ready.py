# SPDX-License-Identifier: MIT
"""A newer kernel is installed on a ready machine: DKMS builds for it, and its first boot becomes ready by itself."""
from expected import expect_ready
from scenario import expect, say

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    newest, packages = machine.newest_kernel()
    running = machine.run("uname -r")
    expect(running != newest, "the archive has no newer kernel than the image")
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    machine.offer_packages(packages)
    say(machine.run(f"apt-get -y install {packages[0]} {packages[1]} 2>&1 | tail -3", 2400))
    # to proxmox-boot-tool, Debian's kernels are as those that somebody built: it keeps those that it was told of
    machine.run(f"! command -v proxmox-boot-tool || {{ proxmox-boot-tool kernel add {newest} && proxmox-boot-tool refresh; }}", 600)
    boot = machine.wait_boot()
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    expect(machine.run("uname -r") == newest, f"it runs {machine.run('uname -r')}")
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_ready(machine, machine.status())
