# SPDX-License-Identifier: MIT
"""A kernel argument that hangs the machine: after a power cycle the old default boots; twice, then the run fails and is undone."""
from expected import expect_as_at_first
from scenario import expect, say

STARTS = "delivered"
CARDS = "two-ports"
PLAN = """
name: hangs
title: A kernel argument with which no boot comes to its end
policy: {reboots: 4}
steps:
  - {gate: hangs, title: It hangs, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [init=/usr/bin/cat]}}
"""
SEED = {"/etc/p2pd/plans/hangs.yaml": PLAN, "/etc/p2pd/p2pd.yaml": "plan: hangs\nreboot_delay_s: 5\n"}
TRIAL = "Booting `p2pd trial: "


def run(machine):
    first = machine.first_view()
    since = machine.console_end()
    machine.run("p2pctl apply --yes --no-block")
    for which in ("first", "second"):
        machine.wait_console(TRIAL, since)
        machine.wait_hanging()
        say(f"power cycle after the {which} trial boot hung")
        since = machine.console_end()
        machine.cut_power()
    status = machine.settle("failed")
    expect("did not come up, 2 times" in status["reason"], status["reason"])
    expect_as_at_first(machine.look("failed and undone"), first)
