# SPDX-License-Identifier: MIT
"""A kernel that was built with clang, for which no build of the catalogue is known: blocked, with the reason why none fits."""
from expected import expect_untouched
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"
SEED = {"/root/seed": (0o755, "#!/bin/sh\nsed -i 's/^CONFIG_CC_VERSION_TEXT=.*/CONFIG_CC_VERSION_TEXT=\"clang version 19.1.7\"/' /boot/config-*\n")}


def run(machine):
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("driver-choice" in status["reason"] and "6.1" in status["reason"] and "clang 19" in status["reason"], status["reason"])
