# SPDX-License-Identifier: MIT
"""Cards whose BAR1 cannot grow: blocked before anything is changed, with firmware named as the cause."""
from expected import expect_untouched
from scenario import expect

STARTS = "delivered"
CARDS = "rebar-off"


def run(machine):
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("bar1-room" in status["reason"], status["reason"])
