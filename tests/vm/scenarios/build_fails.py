# SPDX-License-Identifier: MIT
"""Modules that do not build: the trial build fails with the compiler's message; the old driver is not touched."""
from expected import expect_driver_kept
from scenario import catalogue_drop_in, expect

STARTS = "delivered"
CARDS = "two-ports"
SEED = catalogue_drop_in("fails-late")


def run(machine):
    with expect_driver_kept(machine):
        status = machine.apply("failed")
        expect("build" in status["reason"] and "output_poll_changed" in status["reason"], status["reason"])
