# SPDX-License-Identifier: MIT
"""Secure Boot with the vendors' keys, and none of ours: blocked before anything is changed."""
from expected import expect_untouched
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"
FIRMWARE = "secure-boot"
VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def run(machine):
    machine.wait_boot()
    expect(machine.run(f"od -An -tu1 -j4 {VARIABLE}").strip() == "1", "Secure Boot is off")
    with expect_untouched(machine):
        status = machine.apply("blocked")
        expect("module-loading" in status["reason"], status["reason"])
