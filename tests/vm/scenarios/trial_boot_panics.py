# SPDX-License-Identifier: MIT
"""A kernel argument that no kernel survives: the old default boots by itself; twice, then failed and undone."""
from expected import expect_as_at_first
from scenario import expect
from scenarios import trial_boot_hangs

STARTS = "delivered"
CARDS = "two-ports"
SEED = {path: text.replace("init=/usr/bin/cat", "rdinit=/nonexistent") for path, text in trial_boot_hangs.SEED.items()}


def run(machine):
    first = machine.first_view()
    machine.run("p2pctl apply --yes --no-block")
    machine.wait_console("Kernel panic", 0)
    status = machine.settle("failed")
    expect("did not come up, 2 times" in status["reason"], status["reason"])
    panics = machine.console().count("Kernel panic")
    expect(panics == 2, f"{panics} panics instead of two")
    expect_as_at_first(machine.look("failed and undone"), first)
