# SPDX-License-Identifier: MIT
"""No mirror answers, and what is needed was fetched before: the machine becomes ready from its cache."""
from scenario import expect, expect_ready

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    machine.turn_back("idle")
    machine.wait_boot()
    machine.run("rm -rf /srv/driver-world/http /srv/driver-world/git")
    status = machine.apply("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
