# SPDX-License-Identifier: MIT
"""All mirrors disappear after runfile and source are fetched: the package backup is made of the installed files."""
from expected import expect_ready
from scenario import expect

STARTS = "delivered"
CARDS = "two-behind-switch"


def run(machine):
    machine.run("p2pctl apply --yes --no-block")
    machine.wait_logged("build: applying fix", "it does not come to the build")
    machine.run("p2pctl pause")
    machine.settle("paused")
    machine.run("rm -rf /srv/driver-world")
    machine.run("p2pctl resume --no-block")
    machine.wait_boot()
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
