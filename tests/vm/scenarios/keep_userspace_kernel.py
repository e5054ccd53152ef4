# SPDX-License-Identifier: MIT
"""A new kernel on a machine that kept the driver's packages: a hook builds p2pd's modules for it, and its first boot is ready by itself."""
from expected import expect_ready
from scenario import expect, say
from scenarios.keep_userspace import PLACE, expect_beside_packages

STARTS = "keep-userspace"
CARDS = "two-behind-switch"


def run(machine):
    newest, packages = machine.newest_kernel()
    boot = machine.wait_boot()
    machine.offer_packages(packages)
    say(machine.run(f"apt-get -y install {packages[0]} {packages[1]} 2>&1 | tail -3", 2400))
    machine.run(f"test -e /lib/modules/{newest}/{PLACE} -a ! -e /etc/modprobe.d/00-p2pd-trial.conf")
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    expect(machine.run("uname -r") == newest, f"it runs {machine.run('uname -r')}")
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_ready(machine, machine.status())
    expect_beside_packages(machine)
