# SPDX-License-Identifier: MIT
"""Modules that do not build: failed in the trial build, with the compiler's words; the old driver was never touched."""
from expected import expect_driver_kept
from scenario import catalogue_drop_in, expect

STARTS = "delivered"
CARDS = "two-ports"
SEED = catalogue_drop_in("fails-late")


def run(machine):
    with expect_driver_kept(machine):
        status = machine.apply("failed")
        expect("build" in status["reason"] and "output_poll_changed" in status["reason"], status["reason"])
