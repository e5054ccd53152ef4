# SPDX-License-Identifier: MIT
"""The state database is lost while the trial entry is armed: status tells of the changes, and revert undoes them without it."""
from scenario import ATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = ATTENDED


def run(machine):
    first = machine.first_view()
    machine.arm()
    machine.run("systemctl stop p2pd-worker.service && rm /var/lib/p2pd/state.db*")
    machine.restart()
    told = machine.ssh("p2pctl status").stdout
    expect("revert" in told, f"status names no way back: {told}")
    machine.turn_back_to(first)
