# SPDX-License-Identifier: MIT
"""An inhibitor prevents a restart: nothing is changed until it ends, and the run stays open."""
import time

from expected import expect_untouched
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"


def run(machine):
    with expect_untouched(machine):
        machine.run("systemd-run --unit=keeper systemd-inhibit --what=shutdown --who=backup --why='a backup runs' sleep 600")
        machine.run("p2pctl apply --yes --no-block")
        time.sleep(120)
        status = machine.status()
        expect(status["state"] == "walking" and "backup" in str(status), str(status)[:400])
        machine.run("p2pctl pause")
