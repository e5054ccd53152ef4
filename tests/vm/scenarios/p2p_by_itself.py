# SPDX-License-Identifier: MIT
"""A driver with P2P of its own, on a machine without a run: ready by the proof alone, without a reboot, now and at the next boot.

No file outside p2pd's own state changes, except NCCL's setting, which revert undoes."""
from expected import expect_as_at_first, expect_files_kept
from scenario import expect, say

STARTS = "delivered"
CARDS = "two-professional"
LOADED = "cat /sys/module/nvidia/version /sys/module/nvidia/srcversion"


def expect_proven(machine, status):
    expect(status["state"] == "ready" and status["reboots"] == 0, str(status)[:400])
    expect(machine.ssh("p2pctl is-ready --for nccl,custom-all-reduce").returncode == 0, "is-ready does not agree")
    expect(machine.run("busctl get-property org.p2pd1 /org/p2pd1 org.p2pd1.Manager State") == 's "ready"', "the bus does not agree")
    expect(machine.run("systemctl show -P ActiveState p2pd-ready.target") == "active", "p2pd-ready.target is not active")


def run(machine):
    first, loaded = machine.first_view(), machine.run(LOADED)
    expect(machine.status()["run"] == 0, "something has run already")
    doctor = machine.ssh("p2pctl doctor", 120)
    expect(doctor.returncode == 2 and "p2pctl apply" in doctor.stdout, f"doctor, before: {doctor.returncode}\n{doctor.stdout}")
    with expect_files_kept(machine, but="/etc/nccl.conf"):
        told = machine.told("apply --yes", 900)
        fixed = [step["id"] for step in told["steps"] if step["status"] == "fixed"]
        expect(told["result"] == "ready" and fixed == ["nccl"], f"{fixed}: {str(told)[:400]}")
        expect("NCCL_P2P_LEVEL=" in machine.run("cat /etc/nccl.conf"), "NCCL's setting is not there")
        say(f"{told['reason']}; gates that do not hold: {[step['id'] for step in told['steps'] if step['verdict'] == 'fail']}")
        expect_proven(machine, told)
        expect(machine.ssh("p2pctl doctor", 120).returncode == 0, "doctor does not agree")
    expect(machine.run(LOADED) == loaded, "the loaded driver is another one")
    expect(machine.run("ls /run/reboot-required* 2>/dev/null; true") == "", "a reboot is asked for")

    machine.restart()
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    expect_proven(machine, machine.status())
    expect(machine.run(LOADED) == loaded, "another driver is loaded on the next boot")
    machine.turn_back("idle")
    expect_as_at_first(machine.look("reverted"), first)
