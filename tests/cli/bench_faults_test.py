#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2p-bench on faults of the simulated driver: each is reported in the right words, with the uses that the machine is still fit for."""
import json
import os
import re
import struct
import subprocess
import threading
import time
import unittest

from bench_case import BUILD, ERROR, LAST, LIMITED, LINK, NOT_PROVEN, PROVEN, SAMPLED, TWO, Case, fault, gpu_addresses, machine

# an ELF program for x86-64 that writes to address 0: xor eax, eax; mov [rax], eax
CRASH = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0) + \
    struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 124, 124, 4096) + b"\x31\xc0\x89\x00"


class Faults(Case):
    """Each fault, the text of a failing sentence, and the end of a run: a fault of stores or loads leaves uses of P2P that need neither."""

    MODES = ("--quick",), (), ("--full",)
    TABLE = [
        (fault("wrong-byte", engine="copy", at=5000), r"^GPU 0 -> GPU 1: copy-pu\w+: \d+ wrong words? in .*, one at byte \d+", NOT_PROVEN),
        (fault("wrong-byte", engine="load", at=5000), r"^GPU 0 -> GPU 1: load: \d+ wrong words?", LIMITED),
        (fault("dead-direction"), r"^GPU 0 -> GPU 1: copy-push: .* lost", NOT_PROVEN),
        (fault("lost-stores"), r"^GPU 0 -> GPU 1: store: .* lost", LIMITED),
        (fault("private-mirror"), r"^GPU 0 -> GPU 1: store: .* mirror", LIMITED),
        (fault("alias", engine="copy", at=16 << 20), r"^GPU 0 -> GPU 1: copy-pu", NOT_PROVEN),
        (fault("stale", engine="copy"), r"^GPU 0 -> GPU 1: copy-pu", NOT_PROVEN),
        (fault("late", engine="store"), r"^GPU 0 -> GPU 1: store: .* late", LIMITED),
        (fault("no-peer"), r"^GPU 0 -> GPU 1: .*cannot access", NOT_PROVEN),
        (fault("refuse"), r"^GPU 0 -> GPU 1: .*CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", NOT_PROVEN),
    ]

    def test_each(self):
        for number, (row, pattern, code) in enumerate(self.TABLE):
            for mode in self.MODES[number % 3:number % 3 + 1] if SAMPLED else self.MODES:
                with self.subTest(row["kind"], engine=row.get("engine"), mode=mode):
                    report = self.report(machine(2, faults=[row]), *mode, code=code)
                    self.assertTrue(any(re.search(pattern, line) for line in self.fails(report)), self.fails(report))
                    self.assertFalse(any(line.startswith("GPU 1 -> GPU 0: copy-pu") for line in self.fails(report)), self.fails(report))
                    judgement = report["judgement"]
                    self.assertEqual((judgement["proven"], judgement["limited"]), (False, code == LIMITED))
                    self.assertEqual(any(one["fit"] == "fit" for one in judgement["fit"]), code == LIMITED, judgement["fit"])

    def test_all_ones_in_place_of_pointers(self):
        """As where an IOMMU translates: tests that would follow them are not run, and everything else is reported."""
        report = self.report(machine(2, faults=[{"kind": "dead-direction"}]), code=NOT_PROVEN)
        for pair in report["pairs"]:
            self.assertIsNone(pair["chase_ns"])
            self.assertIn("pointers", pair["not_run"]["chase"])
            self.assertAlmostEqual(pair["staged_gb_s"]["median"], 18, delta=0.3)
        self.assertEqual({(w["from"], w["to"]) for w in report["wrong"]}, {(0, 1), (1, 0)})

    def test_the_wrong_byte_is_named(self):
        """A copy starts at its own pointer: byte 700 of every copy that has one."""
        report = self.report(machine(2, faults=[fault("wrong-byte", engine="copy", at=700)]), "--quick", code=NOT_PROVEN)
        self.assertEqual({(w["from"], w["to"], w["offset"]) for w in report["wrong"] if w["test"].startswith("copy-pu")}, {(0, 1, 700)})

    def test_misroute(self):
        report = self.report(machine(3, faults=[fault("misroute", engine="copy", other=2)]), "--quick", code=NOT_PROVEN)
        self.assertTrue(any(w["test"] == "copy-push" and (w["from"], w["to"]) == (0, 1) for w in report["wrong"]), report["wrong"])

    def test_impossible_rate(self):
        description = machine(2, gpu_addresses(TWO), faults=[fault("fast", engine="copy")], link=LINK | {"gb_s": 13})
        report = self.report(description, root=BUILD / "machines" / TWO, code=NOT_PROVEN)
        self.assertTrue(any("faster than the link" in line for line in self.fails(report)), self.fails(report))

    def test_slow(self):
        description = machine(2, gpu_addresses(TWO), faults=[fault("slow", engine="copy")], link=LINK | {"gb_s": 13})
        report = self.report(description, root=BUILD / "machines" / TWO, code=NOT_PROVEN)
        self.assertTrue(any(re.search(r"GPU 0 -> GPU 1: .* GB/s is \d+ % of", line) for line in self.fails(report)), self.fails(report))

    def test_hang(self):
        begin = time.monotonic()
        report = self.report(machine(2, faults=[fault("hang", engine="copy")]), "--quick", "--deadline", "3", code=NOT_PROVEN)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertTrue(any("until this is repaired: GPU 0 -> GPU 1 did not answer in copy-push" in line for line in report["advice"]), report["advice"])
        self.assertNotIn("wrong", json.dumps([report["judgement"], report["advice"]]))
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1 did not answer in copy-push: .* within 3 s; under way: bytes")

    def test_hang_keeps_what_was_found(self):
        """Without a deadline: 10 s, since there is little data. Stores begin after copies are proven."""
        begin = time.monotonic()
        report = self.report(machine(2, faults=[{"kind": "hang", "engine": "store", "from": 1, "to": 0}]), code=NOT_PROVEN)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertRegex(self.fails(report)[0], r"^GPU 1 -> GPU 0 did not answer in store: .* within 10\.1 s; under way: bytes")
        self.assertEqual(len(report["gpus"]), 2)
        self.assertTrue(all(pair["staged_gb_s"] for pair in report["pairs"]))

    def test_hang_with_a_reason(self):
        description = machine(2, faults=[fault("xid", engine="copy"), fault("hang", engine="store")], kernel_log=str(self.kernel_log()))
        report = self.report(description, "--quick", "--deadline", "3", root=self.scratch / "root", code=NOT_PROVEN)
        self.assertTrue(any(re.search(r"did not answer in store: .* under way: bytes", line) for line in self.fails(report)), self.fails(report))
        self.assertTrue(any("Xid" in line for line in report["kernel_log"]), report["kernel_log"])

    def test_xid(self):
        log = self.kernel_log()
        report = self.report(machine(2, faults=[fault("xid")], kernel_log=str(log)), "--quick", root=self.scratch / "root", code=NOT_PROVEN)
        self.assertEqual(len(report["kernel_log"]), 1)
        self.assertTrue(any("Xid" in line for line in self.fails(report)))

    def test_a_users_crash_is_no_fault(self):
        """The kernel prints the file name of a crashing program, line breaks included: here that of user nobody, on this host."""
        line = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus."
        program = self.scratch / f"a\n{line}"
        program.write_bytes(CRASH)
        program.chmod(0o755)
        self.scratch.chmod(0o755)
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self.skipTest(f"/dev/kmsg: {error.strerror}")
        self.addCleanup(os.close, log)
        os.lseek(log, 0, os.SEEK_END)
        ended = threading.Event()

        def crash():
            user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
            while not ended.wait(0.05):
                subprocess.run([program], cwd="/", **user)

        crashing = threading.Thread(target=crash)
        crashing.start()
        try:
            report = self.report(machine(2), "--quick")
        finally:
            ended.set()
            crashing.join()
        said = self.records(log)
        if not any(line in record for record in said):
            self.skipTest("this kernel does not print crashes (debug.exception-trace)")
        self.assertEqual((report["judgement"]["proven"], report["kernel_log"]), (True, []))

    @staticmethod
    def records(log):
        """Records that /dev/kmsg has given since `log` was opened."""
        found = []
        while True:
            try:
                found.append(os.read(log, 16384).decode(errors="replace"))
            except BlockingIOError:
                return found

    def test_atomics(self):
        description = machine(2, faults=[fault("atomics-wrong")])
        for device in description["devices"]:
            device["atomics"] = True
        report = self.report(description, "--full")
        self.assertEqual({(a["from"], a["to"]): a["exact"] for a in report["atomics"]}[(0, 1)], False)
        report = self.report(description, "--full", "--for", "nccl,atomics", code=LIMITED)
        self.assertTrue(self.fails(report))


class Uses(Case):
    """--for: the uses that must work, and those that a machine is still fit for."""

    def test_a_clean_machine(self):
        report = self.report(machine(2))
        self.assertEqual(report["wanted"], ["nccl", "custom-all-reduce"])
        self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "fit", "custom-all-reduce": "fit"} | LAST)

    def test_reads_wrong_writes_right(self):
        """A fault of a use that was not requested is a warning."""
        description = machine(2, faults=[fault("wrong-byte", engine="load", at=5000)])
        for wanted, code in (("nccl", PROVEN), ("copies,nccl", PROVEN), ("custom-all-reduce", LIMITED), ("nccl,custom-all-reduce", LIMITED), (None, LIMITED)):
            for mode in ("--quick",) if SAMPLED and code == LIMITED else ("--quick", "--full"):
                with self.subTest(wanted, mode=mode):
                    report = self.report(description, mode, *(["--for", wanted] if wanted else []), code=code)
                    self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "fit", "custom-all-reduce": "unfit"} | LAST)
                    grades = {r["grade"] for r in report["judgement"]["remarks"] if r["transfer"].startswith("load")}
                    self.assertEqual(grades, {"warn" if code == PROVEN else "fail"})
                    if code == LIMITED:
                        self.assertRegex(report["judgement"]["summary"], "^fit for copies, nccl; not for custom-all-reduce; not tested for atomics, managed-memory, compressible-memory: GPU 0 -> GPU 1: load")
        text = self.bench(description, "--quick", code=LIMITED).stdout
        self.assertRegex(text, r"^fit for copies, nccl; not for custom-all-reduce")

    def test_stores_lost(self):
        report = self.report(machine(2, faults=[fault("lost-stores")]), "--quick", "--for", "copies")
        self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "unfit", "custom-all-reduce": "unfit"} | LAST)

    def test_what_was_not_tested(self):
        """A quick run tests no atomics, and does not count that against the machine."""
        self.assertEqual(self.fit(self.report(machine(2), "--quick", "--for", "atomics"))["atomics"], "not_tested")
        report = self.report(machine(2), "--full", "--for", "atomics", code=LIMITED)
        self.assertTrue(any("atomics was not tested: not supported" in line for line in self.fails(report)), self.fails(report))

    def test_bad_words(self):
        for words in ("nvshmem", "nccl,nvshmem", "NCCL", ""):
            with self.subTest(words):
                done = self.bench(machine(2), "--quick", "--for", words, code=ERROR)
                self.assertRegex(done.stderr, r"^p2p-bench: --for: .* is not a use of P2P; known: copies, nccl, custom-all-reduce, atomics, managed-memory, compressible-memory$")
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
