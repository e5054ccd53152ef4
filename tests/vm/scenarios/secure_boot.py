# SPDX-License-Identifier: MIT
"""Secure Boot with the vendors' keys, and none of ours: blocked before anything is changed."""
from scenario import expect, expect_untouched

STARTS = "delivered"
CARDS = "two-ports"
FIRMWARE = "secure-boot"
SEED = {}


def run(machine):
    expect("SecureBoot enabled" in machine.firmware_says() or machine.firmware_says(), "Secure Boot is off")
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("module-loading" in status["reason"], status["reason"])
