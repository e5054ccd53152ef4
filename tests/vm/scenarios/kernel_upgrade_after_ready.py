# SPDX-License-Identifier: MIT
"""A newer kernel is installed on a ready machine: DKMS builds for it, and the first boot of it comes back ready by itself."""
import re
import subprocess

from scenario import expect, expect_ready, say

STARTS = "first-boot"
CARDS = "two-behind-switch"


def newest_kernel():
    """Its name and its packages, as the archive that apt uses on this host has them."""
    names = subprocess.run(["apt-cache", "pkgnames", "linux-headers-6.1.0-"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    kernels = [name[len("linux-headers-"):] for name in names if re.fullmatch(r"linux-headers-6\.1\.0-\d+-amd64", name)]
    newest = max(kernels, key=lambda name: int(name.split("-")[1]))
    common = newest.replace("-amd64", "-common")
    return newest, [f"linux-image-{newest}", f"linux-headers-{newest}", f"linux-headers-{common}"]


def run(machine):
    newest, packages = newest_kernel()
    running = machine.run("uname -r")
    expect(running != newest, "the archive has no newer kernel than the image")
    machine.settle("ready")
    machine.offer_packages(packages)
    say(machine.run(f"apt-get -y install {packages[0]} {packages[1]} 2>&1 | tail -3", 2400))
    boot = machine.wait_boot()
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    expect(machine.run("uname -r") == newest, f"it runs {machine.run('uname -r')}")
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_ready(machine, machine.status())
