# SPDX-License-Identifier: MIT
"""A machine that is ready stays so over a boot, and another apply changes nothing and makes no reboot."""
from expected import expect_untouched
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    with expect_untouched(machine):
        boot = machine.wait_boot()
        told = machine.told("apply --yes", 900)
        expect(told["state"] == "ready" and told.get("changed") is False, str(told)[:400])
        expect(machine.wait_boot() == boot, "it was rebooted")
