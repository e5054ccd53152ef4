# SPDX-License-Identifier: MIT
"""An image that "p2pctl apply --root" made becomes ready with one reboot at most, without a compiler and without a network."""
import json

from expected import expect_ready
from scenario import UNATTENDED, expect

STARTS = "applied"
CARDS = "two-behind-switch"
SEED = UNATTENDED


def run(machine):
    machine.first_view()
    found = machine.run("for name in cc gcc gcc-12 g++ make dkms; do command -v $name; done; ls -d /lib/modules/*/build/.config 2>/dev/null; true")
    expect(not found, f"there is something to build with: {found}")
    status = machine.settle("ready")
    expect(status["reboots"] <= 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    built = machine.run("ls /var/cache/p2pd/builds /var/cache/p2pd/sources 2>/dev/null; true")
    expect(not built, f"it has built or fetched: {built}")
    baseline = json.loads(machine.run("cat /var/lib/p2pd/baseline.json"))  # the baseline includes P2P that loses every byte
    expect(baseline.get("schema") == "p2pd.bench/1", f"the baseline is no report: {baseline}")
