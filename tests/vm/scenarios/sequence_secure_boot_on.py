# SPDX-License-Identifier: MIT
"""On a ready machine Secure Boot is turned on, and the clock goes back by a year: its modules are signed, and it is ready again."""
from expected import expect_ready
from scenario import expect
from scenarios.secure_boot import VARIABLE

STARTS = "first-boot"
CARDS = "two-behind-switch"
FIRMWARE = "secure-boot-enrolled"  # first-boot ran without it


def run(machine):
    machine.wait_boot()
    expect(machine.run(f"od -An -tu1 -j4 {VARIABLE}").strip() == "1", "Secure Boot is off")
    machine.set_clock_back()
    machine.restart()
    machine.run("systemctl start --wait p2pd-prove.service || true", 900)
    expect_ready(machine, machine.status())
    machine.turn_back_to(machine.notes["first"])
