# SPDX-License-Identifier: MIT
"""p2p-bench on the simulated driver: machines, faults, and helpers of its tests. P2PD_BUILD: the build directory."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/sim"))
BUILD = pathlib.Path(os.environ.get("P2PD_BUILD", ROOT / "build/dev")).resolve()
BENCH = BUILD / "bin/p2p-bench"
SIMULATED_NCCL = BUILD / "sim/libnccl.so.2"
SCHEMA = json.loads((ROOT / "config/schema/bench.schema.json").read_text())
SAMPLED = os.environ.get("P2PD_SWEEP_EVERY", "1") != "1"  # one of several modes and widths
PROVEN, ERROR, NOT_PROVEN, NOTHING, LIMITED, PART = 0, 1, 3, 4, 5, 6

# records with the slots of the GPUs: their paths are then known, and speed is judged
TWO = "rtx4090-x2-am5"
EIGHT = "rtx4090-x8-two-socket"
LINK = {"gb_s": 25.8, "both_gb_s": 50.0, "latency_ns": 1200, "staged_gb_s": 18.0, "staged_latency_ns": 11000, "load_gb_s": 22.0,
        "store_gb_s": 24.0}
LAST = {"atomics": "not_tested", "managed-memory": "not_tested", "compressible-memory": "not_tested"}  # use to its result without --full


def gpu_addresses(record):
    """PCI addresses of the NVIDIA display functions of a record's lspci dump."""
    dump = (BUILD / "machines" / record / "lspci-xxxx.txt").read_text()
    return re.findall(r"^([0-9a-f:.]+) (?:VGA compatible|3D) controller: NVIDIA", dump, re.M)


def machine(gpus, addresses=None, **more):
    """A simulated machine of healthy Gen4 cards. A handshake waits for 5 s, as long as a loaded host may take, where none hangs."""
    names = addresses or [f"0000:{i + 1:02x}:00.0" for i in range(gpus)]
    names = [a if a.count(":") == 2 else "0000:" + a for a in names]
    return {"link": LINK, "patience": 1 if "faults" in more else 25,
            "devices": [{"name": "NVIDIA GeForce RTX 4090", "uuid": f"{i + 1:032x}", "address": names[i], "memory_mib": 128,
                         "free_mib": 96, "sm": [8, 9], "multiprocessors": 8} for i in range(gpus)]} | more


def fault(kind, **more):
    return {"kind": kind, "from": 0, "to": 1} | more


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-bench-"))
        self.addCleanup(shutil.rmtree, self.scratch)

    def variables(self, description):
        """Environment of a program that finds a simulated machine."""
        file = self.scratch / "machine.json"
        file.write_text(json.dumps(description))
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "sim"), "P2PD_SIM_CUDA": str(file)}

    def bench(self, description, *options, code=None, timeout=120, root=None, environment=()):
        """Runs p2p-bench on a simulated machine."""
        command = [BENCH, *options] + (["--root", root] if root else [])
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              env=self.variables(description) | dict(environment))
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, description, *options, code=PROVEN, **more):
        report = json.loads(self.bench(description, "--json", *options, code=code, **more).stdout)
        jsonschema.validate(report, SCHEMA)
        return report

    def fails(self, report):
        return [r["text"] for r in report["judgement"]["remarks"] if r["grade"] == "fail"]

    def fit(self, report):
        return {one["use"]: one["fit"] for one in report["judgement"]["fit"]}

    def kernel_log(self):
        """A root with a kernel log that already has an Xid of before the run."""
        log = self.scratch / "root/dev/kmsg"
        log.parent.mkdir(parents=True)
        log.write_text("6,1,1,-;an old message: NVRM: Xid (PCI:0000:01:00): 79, before the run\n")
        for name in ("sys/bus/pci/devices", "proc"):
            (self.scratch / "root" / name).mkdir(parents=True)
        return log
