# SPDX-License-Identifier: MIT
"""One card: blocked before anything is changed."""
from expected import expect_untouched
from scenario import expect

STARTS = "delivered"
CARDS = "one-gpu"


def run(machine):
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("gpus" in status["reason"], status["reason"])
