# SPDX-License-Identifier: MIT
"""A kernel newer than any build knows: blocked, with the reason why no entry of the catalogue fits."""
from scenario import catalogue_edit, expect, expect_untouched

STARTS = "delivered"
CARDS = "two-ports"
SEED = catalogue_edit("s/\"min\": \"5.13\"/\"min\": \"5.13\", \"max\": \"6.0\"/")


def run(machine):
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("driver-choice" in status["reason"] and "6.1" in status["reason"], status["reason"])
