#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2p-bench --soak on the simulated driver: rounds of all tests, samples between them, an end at the first fault."""
import json
import pathlib
import signal
import struct
import subprocess
import time
import unittest

import jsonschema

from bench_case import BENCH, ERROR, LIMITED, NOT_PROVEN, PROVEN, SCHEMA, Case, fault, machine


class Soak(Case):
    SHORT = "--soak", "0.05"

    def on_a_bus(self, gpus, **more):
        """A machine whose kernel log, links, counters and configuration spaces are files."""
        log = self.kernel_log()
        for i in range(gpus):
            folder = self.scratch / f"root/sys/bus/pci/devices/0000:{i + 1:02x}:00.0"
            folder.mkdir()
            (folder / "config").write_bytes(struct.pack("<HH", 0x10de, 0x2684) + bytes(252))
            for name, text in {"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16", "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
                               "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0", "aer_dev_correctable": "RxErr 3\nTOTAL_ERR_COR 3"}.items():
                (folder / name).write_text(text + "\n")
        return machine(gpus, kernel_log=str(log), **more)

    def start(self, description, *options):
        return subprocess.Popen([BENCH, "--root", self.scratch / "root", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.variables(description), stdin=subprocess.DEVNULL)

    def left_behind(self):
        """Processes of this machine's benchmark."""
        mine = f"P2PD_SIM_CUDA={self.scratch / 'machine.json'}".encode()
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                found += [entry.parent.name] if mine in entry.read_bytes().split(b"\0") else []
            except OSError:
                pass
        return found

    def test_clean(self):
        begin = time.monotonic()
        report = self.report(self.on_a_bus(2), *self.SHORT, root=self.scratch / "root")
        self.assertGreater(time.monotonic() - begin, 3)
        soak = report["soak"]
        self.assertEqual((report["mode"], soak["minutes"], soak["ended"]), ("soak", 0.05, "complete"))
        first, last = soak["samples"][0], soak["samples"][-1]
        self.assertEqual((first["rounds"], first["checked_bytes"]), (0, 0))
        self.assertGreater(last["rounds"], 0)
        self.assertGreaterEqual(last["seconds"], 3)
        self.assertGreater(last["checked_bytes"], 100 << 20)
        self.assertAlmostEqual(last["slowest_gb_s"], 25.8, delta=0.5)
        self.assertEqual(last["gpus"][1], {"link_gt_s": 16, "link_width": 16, "temperature_c": None, "replays": None, "throttle": None})
        self.assertEqual(last["aer"]["0000:02:00.0 correctable"], 3)
        for pair in report["pairs"]:
            for test in ("copy-push", "copy-pull", "store", "load", "copy-timed", "store-timed", "load-timed", "graph-all-reduce"):
                self.assertGreater(pair["verified_bytes"][test], 0, test)
        self.assertEqual(sum(sum(p["verified_bytes"].values()) for p in report["pairs"]), last["checked_bytes"])
        self.assertEqual(self.left_behind(), [])

    def test_text(self):
        done = self.bench(self.on_a_bus(2), *self.SHORT, root=self.scratch / "root", code=PROVEN)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^0\.00 min: 0 B checked, 0\.0 GB/s slowest copy, 0 wrong, - C, - replays, 0 AER errors$")
        self.assertRegex(lines[1], r"^0\.0\d min: .* checked, 25\.\d GB/s slowest copy, 0 wrong, - C, - replays, 0 AER errors$")
        self.assertRegex(done.stdout, r"\nSoak of 0\.05 minutes, complete: 0\.0\d min: ")

    def test_a_wrong_byte_after_some_time(self):
        faulty = machine(2, faults=[fault("wrong-byte", engine="load", at=5000, after=4000)])
        begin = time.monotonic()
        report = self.report(faulty, "--soak", "5", code=LIMITED)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(report["soak"]["ended"], "wrong")
        self.assertGreater(report["soak"]["samples"][-1]["wrong"], 0)
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1: (load|load-plain|load-timed|graph-all-reduce): .*after \d+\.\d s of soak")
        self.assertEqual({(w["from"], w["to"]) for w in report["wrong"]}, {(0, 1)})

    def test_errors_that_links_repair(self):
        description = self.on_a_bus(2)
        process = self.start(description, "--json", "--soak", "0.06")
        self.assertIn("0.00 min:", process.stderr.readline())
        folder = self.scratch / "root/sys/bus/pci/devices/0000:02:00.0"
        (folder / "aer_dev_correctable").write_text("RxErr 5\nTOTAL_ERR_COR 5\n")
        (folder / "current_link_width").write_text("8\n")
        report = json.loads(process.communicate(timeout=60)[0])
        self.assertEqual(process.returncode, PROVEN)
        texts = [r["text"] for r in report["judgement"]["remarks"] if r["test"] == "soak"]
        self.assertEqual(texts, ["a link became slower in the soak: GPU 1 16 GT/s x8, was 16 GT/s x16",
                                 "the links had errors in the soak, which they repaired: 0 replays, 2 AER errors"])

    def test_a_gpu_falls_off_the_bus(self):
        process = self.start(self.on_a_bus(2, faults=[fault("gone", engine="copy", after=60)]), "--json", "--soak", "5")
        log = self.scratch / "root/dev/kmsg"
        while "Xid (PCI:0000:02:00): 79, pid='<" not in log.read_text():
            time.sleep(0.01)
        (self.scratch / "root/sys/bus/pci/devices/0000:02:00.0/config").write_bytes(b"\xff" * 256)
        report = json.loads(process.communicate(timeout=60)[0])
        self.assertEqual((process.returncode, report["soak"]["ended"]), (NOT_PROVEN, "wrong"))
        self.assertRegex(self.fails(report)[0], r"^GPU \d -> GPU \d: faulted at copy-\w+ .*CUDA_ERROR_UNKNOWN; after \d+\.\d s of soak; off the PCI bus: GPU 1 \(0000:02:00\.0\)$")
        self.assertTrue(any("fallen off the bus" in line for line in report["kernel_log"]), report["kernel_log"])
        self.assertEqual(self.left_behind(), [])

    def test_a_hang(self):
        begin = time.monotonic()
        description = machine(2, faults=[fault("hang", engine="store", after=120)])
        report = self.report(description, "--soak", "5", "--deadline", "3", code=NOT_PROVEN)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(report["soak"]["ended"], "hung")
        self.assertRegex(self.fails(report)[0], r"^GPU \d -> GPU \d did not answer in [\w-]+: .* within 3 s; under way: soak")
        self.assertEqual(self.left_behind(), [])

    def test_a_hang_of_the_second_process(self):
        """It is no wrong word."""
        report = self.report(machine(2, faults=[fault("hang", engine="load", graph=True)]), "--soak", "5", code=LIMITED)
        self.assertEqual((report["soak"]["ended"], report["soak"]["samples"][-1]["wrong"]), ("hung", 0))
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1 did not answer in graph-all-reduce: .*after \d+\.\d s of soak$")

    def test_interrupted(self):
        process = self.start(self.on_a_bus(2), "--json", "--soak", "5")
        self.assertIn("0.00 min:", process.stderr.readline())
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
        report = json.loads(out)
        jsonschema.validate({k: v for k, v in report.items() if k not in ("gain", "advice")}, SCHEMA)
        self.assertEqual((process.returncode, report["soak"]["ended"], report["wrong"]), (130, "interrupted", []))
        self.assertGreater(report["soak"]["samples"][-1]["checked_bytes"], 0)
        self.assertRegex(errors.splitlines()[-1], r"^0\.0\d min: [1-9]")
        self.assertEqual(self.left_behind(), [])

    def test_options(self):
        for minutes in ("0", "-1", "a", "10081"):
            self.bench(machine(2), "--soak", minutes, code=ERROR)


if __name__ == "__main__":
    unittest.main()
