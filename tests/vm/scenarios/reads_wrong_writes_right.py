# SPDX-License-Identifier: MIT
"""Kernels load wrong bytes from a peer; their stores and copies are right: limited, now and at the next boot, and the driver is kept."""
import json

from expected import MODULES, expect_own_modules
from scenario import UNATTENDED, expect, quirks, say

STARTS = "delivered"
CARDS = "no-iommu"  # no alternative is left to try
SEED = UNATTENDED | quirks({"faults": [{"kind": "wrong-byte", "engine": "load", "at": 5000}]})
EXIT_CODES = {"is-ready": 5, "is-ready --for copies": 0, "is-ready --for nccl": 0, "is-ready --for custom-all-reduce": 3,
              "is-ready --for nccl,custom-all-reduce": 3, "doctor": 5}


def expect_limited(machine, status):
    expect(status["state"] == "limited" and status["result"] == "limited", str(status)[:400])
    expect(status["fit_for"] == ["copies", "nccl"] and status["undone"] == [], f"fit for {status['fit_for']}, undone {status['undone']}")
    for words, code in EXIT_CODES.items():
        done = machine.ssh(f"p2pctl {words}", 120)
        expect(done.returncode == code, f"p2pctl {words}: exit {done.returncode}, not {code}: {done.stdout.strip()[-400:]}")
    told = machine.run("for name in State FitFor; do busctl get-property org.p2pd1 /org/p2pd1 org.p2pd1.Manager $name; done").splitlines()
    expect(told == ['s "limited"', 'as 2 "copies" "nccl"'], f"the bus says {told}")
    expect(machine.run("systemctl show -P ActiveState p2pd-ready.target") == "inactive", "p2pd-ready.target is active")
    files = machine.run("ls /run/p2pd").split()
    expect("limited" in files and "ready" not in files, f"in /run/p2pd: {files}")


def expect_own_driver(machine):
    modules = machine.run(MODULES)
    say("modules: " + modules.replace("\n", "\n      "))
    expect_own_modules(modules)
    expect(machine.run("cat /sys/module/nvidia/version") == "570.148.11", "the loaded driver is not the one that gives P2P")
    expect(machine.run("ls /etc/modprobe.d/00-p2pd-trial.conf 2>/dev/null; true") == "", "the modules are still on trial")


def run(machine):
    status = machine.settle("limited")
    expect("custom-all-reduce" in status["reason"] and "load" in status["reason"], status["reason"])
    expect_limited(machine, status)
    expect_own_driver(machine)

    boot, run_before = machine.wait_boot(), status["run"]
    again = machine.ssh("p2pctl apply --yes --json", 900)
    expect(again.returncode == 5, f"p2pctl apply: exit {again.returncode}: {again.stdout.strip()[-400:]}")
    told = json.loads(again.stdout)
    expect(told["state"] == "limited" and told["run"] != run_before and told.get("changed") is False, str(told)[:400])
    expect(machine.wait_boot() == boot, "another apply made a reboot")

    machine.restart()
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    status = machine.status()
    expect(status["plan"] == "verify", f"on the next boot it is plan {status['plan']} that was walked")
    expect_limited(machine, status)
    expect_own_driver(machine)
