# SPDX-License-Identifier: MIT
"""A restart cancelled by "shutdown -c", then one by hand: no boot has banned modules while p2pd is paused; resume becomes ready."""
from expected import expect_ready
from scenario import ATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = ATTENDED


def run(machine):
    first = machine.first_view()
    machine.arm()
    machine.run("shutdown -c")
    machine.settle("paused")
    machine.restart()
    banned = machine.ssh("test -e /etc/modprobe.d/00-p2pd-trial.conf").returncode == 0
    state = machine.status()["state"]
    expect(not (machine.is_trial() and banned and state == "paused"), "a trial boot with banned modules, and p2pd is paused")
    if state == "paused":
        machine.run("p2pctl resume --no-block")
        machine.wait_until(lambda: machine.status()["state"] != "paused", "resume has no effect")
    expect_ready(machine, machine.settle("ready"))
    machine.turn_back_to(first)
