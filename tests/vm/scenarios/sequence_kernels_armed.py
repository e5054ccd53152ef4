# SPDX-License-Identifier: MIT
"""A kernel comes and becomes the default while the trial entry is armed, and is purged while one of it is: each next boot comes up."""
from expected import expect_ready
from scenario import ATTENDED, expect, say

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = ATTENDED
PURGE_S = 900  # the kernel is purged by then


def run(machine):
    machine.wait_boot()
    old = machine.run("uname -r")
    newest, packages = machine.newest_kernel()
    expect(old != newest, "the archive has no newer kernel than the image")
    machine.arm()
    machine.offer_packages(packages)
    say(machine.run(f"apt-get -y install {packages[0]} {packages[1]} 2>&1 | tail -3", 2400))
    machine.run("p2pctl pause")
    machine.arm("resume", delay_s=PURGE_S)  # for the new kernel
    say(machine.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y purge {packages[0]} 2>&1 | tail -3", 1200))
    expect_ready(machine, machine.settle("ready"))  # the restart that was announced comes by itself
    expect(machine.run("uname -r") == old, f"it runs {machine.run('uname -r')}")
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect(machine.run("cat /sys/module/nvidia/version") == "570.123.11", "the old driver is not loaded")
