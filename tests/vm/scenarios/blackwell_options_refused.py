# SPDX-License-Identifier: MIT
"""RTX 50 whose driver refuses P2P in spite of its options: they are undone, and patched modules are installed."""
from expected import expect_ready
from scenario import expect, quirks
from scenarios.blackwell_options import install_newer_driver, keys_in_force

STARTS = "delivered"
CARDS = "two-blackwell"
SEED = quirks({"gates": {"p2p-modules": "patched"}})


def run(machine):
    install_newer_driver(machine)
    status = machine.apply("ready")
    expect_ready(machine, status)
    expect("RMPcieP2PType" not in machine.run("cat /etc/modprobe.d/zz-p2pd.conf"), "the options are still configured")
    expect(not keys_in_force(machine), f"in force: {keys_in_force(machine)}")
    expect("blackwell-options" in machine.run("p2pctl history --all"), "history does not tell of the attempt")
