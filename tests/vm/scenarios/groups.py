# SPDX-License-Identifier: MIT
"""Two groups of peers become ready in one run; after a card was pulled the other group is, and the status says which pairs went."""
import topology
from expected import expect_ready
from scenario import UNATTENDED, expect, say

STARTS = "delivered"
CARDS = "two-groups"
SEED = UNATTENDED


def run(machine):
    status = machine.settle("ready")
    expect_ready(machine, status)
    expect("2 x RTX 3090; 2 x RTX 4090" in status["reason"] or "2 x RTX 4090; 2 x RTX 3090" in status["reason"], status["reason"])
    expect({name: len(gpus) for name, gpus in status["groups"].items()} == {"ada": 2, "ampere": 2}, str(status["groups"]))
    for command in ("p2pctl doctor", "p2pctl env", "p2pctl metrics | grep -E 'group|pair_copy'", "p2pctl features", "cat /run/p2pd/ready"):
        say(f"{command}:\n      " + machine.run(command, 120).replace("\n", "\n      "))
    devices = machine.run("grep '\"name\"' /run/cdi/p2pd.json")
    expect("ready" in devices and "ada" in devices and "ampere" in devices, devices)
    machine.power_off()
    machine.cards = topology.read("two-groups-one-pulled")
    machine.start()
    machine.wait_boot()
    machine.run("systemctl start --wait p2pd-prove.service || true", 900)
    status = machine.status()
    say(f"{status['state']}: {status['reason']}")
    expect(status["state"] == "ready" and machine.run("p2pctl is-ready && echo yes") == "yes", "the other group is not ready")
    expect("2 x RTX 4090; RTX 3090 alone; gone since the last full proof: 2 ordered pairs, with" in status["reason"], status["reason"])
