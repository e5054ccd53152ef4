# SPDX-License-Identifier: MIT
"""A kernel update arrives on a ready machine without its headers, so no modules can be built for it: the proven kernel stays the
default, and status and the message of the day say so. Once the headers are there DKMS builds them, and the new kernel is the default."""
from expected import expect_ready
from scenario import expect, say

STARTS = "first-boot"
CARDS = "two-behind-switch"
MESSAGE = "/run/motd.d/p2pd-notes"


def restart(machine):
    boot = machine.wait_boot()
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_ready(machine, machine.status())


def default_entry(machine):
    return machine.run("grep -o 'set default=\"[^$]*\"' /boot/grub/grub.cfg | tail -1")


def run(machine):
    newest, packages = machine.newest_kernel()
    proven = machine.run("uname -r")
    expect(proven != newest, "the archive has no newer kernel than the image")
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    settings = machine.run("cat /etc/default/grub")
    expect(default_entry(machine) == 'set default="0"', f"before the update: {default_entry(machine)}")

    machine.offer_packages(packages)
    say(machine.run(f"apt-get -y --no-install-recommends install {packages[0]} 2>&1 | tail -5", 2400))
    expect(newest in machine.run("ls /boot"), "the kernel was not installed")
    expect(proven in default_entry(machine), f"after the update: {default_entry(machine)}")
    restart(machine)
    expect(machine.run("uname -r") == proven, f"without modules {machine.run('uname -r')} was started")
    for where, text in (("p2pctl status", machine.ssh("p2pctl status").stdout), (MESSAGE, machine.run(f"cat {MESSAGE}"))):
        expect(newest in text and "does not start by default" in text and f"linux-headers-{newest}" in text, f"{where} says: {text}")
    machine.apply("ready")  # that kernel does not block the run

    say(machine.run(f"apt-get -y install {packages[1]} 2>&1 | tail -5", 2400))
    expect(default_entry(machine) == 'set default="0"', f"with modules: {default_entry(machine)}")
    restart(machine)
    expect(machine.run("uname -r") == newest, f"with modules {machine.run('uname -r')} was started")
    expect("by default" not in machine.ssh("p2pctl status").stdout, "it is still told")
    expect(machine.ssh(f"test -e {MESSAGE}").returncode != 0, "the message of the day is still there")

    expect(machine.run("cat /etc/default/grub") == settings, "/etc/default/grub was changed")
