#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Transfers of applications over P2P, in p2p-bench on the simulated driver: NCCL's own runs, and vLLM's all-reduce in CUDA graphs."""
import os
import shutil
import time
import unittest

from bench_case import BUILD, LAST, LIMITED, LINK, NOT_PROVEN, PROVEN, SIMULATED_NCCL, Case, fault, gpu_addresses, machine


class Nccl(Case):
    """NCCL's own runs, without P2P and with it, on two GPUs below an Intel root: NCCL needs a level there."""

    RECORD = "rtx4090-x2-vtd-strict"
    X8 = LINK | {"gb_s": 13, "both_gb_s": 25, "staged_gb_s": 9, "load_gb_s": 12, "store_gb_s": 12.5}

    def nccl(self, *options, fault="", code=PROVEN, **environment):
        return self.report(machine(2, gpu_addresses(self.RECORD), link=self.X8), *options, root=BUILD / "machines" / self.RECORD, code=code,
                           environment={"P2PD_SIM_NCCL": fault, **environment})

    def fit_and_why(self, report):
        return {one["use"]: (one["fit"], one["why"]) for one in report["judgement"]["fit"]}

    def test_at_the_level_that_it_needs(self):
        """A full proof runs it by itself."""
        report = self.nccl("--full", "--for", "nccl")
        nccl = report["collectives"]
        self.assertEqual(nccl["pairs"], {"GPU 0 -> GPU 1": "P2P/CUMEM", "GPU 1 -> GPU 0": "P2P/CUMEM"})
        self.assertIn(nccl["p2p_level"], ("PHB", "SYS"))
        self.assertEqual(nccl["library"], str(SIMULATED_NCCL.resolve()))
        self.assertRegex(nccl["summary"], r"^NCCL 2\.28\.3: P2P on 2 of 2, all-reduce [\d.]+ GB/s, [\d.]+ without$")
        self.assertTrue(report["judgement"]["summary"].endswith("; " + nccl["summary"]), report["judgement"]["summary"])
        self.assertEqual(self.fit_and_why(report)["nccl"], ("fit", ""))
        self.assertIsNone(self.nccl("--quick")["collectives"])

    def test_at_the_users_level(self):
        report = self.nccl("--quick", "--collectives", NCCL_P2P_LEVEL="PIX")
        self.assertRegex(report["collectives"]["summary"], r"^NCCL 2\.28\.3: P2P on 0 of 2, ")
        self.assertEqual(self.fit_and_why(report)["nccl"], ("fit", "NCCL 2.28.3 did not use P2P on 2 of 2 pairs"))

    def test_faults_of_p2p(self):
        """Includes an NCCL that says that it uses P2P, and moves wrong bytes."""
        for seeded, text in (("hang-p2p", r"^NCCL 2\.28\.3: hangs with P2P: no answer within 20 s$"),
                            ("die-p2p", r"^NCCL 2\.28\.3: fails with P2P: the worker ended by signal 6 \(Aborted\)$"),
                            ("refuse-p2p", r"^NCCL 2\.28\.3: fails with P2P: .*ncclCommInitAll: unhandled system error: simulated \[31mrefusal$"),
                            ("wrong-p2p", r"^NCCL all_reduce of 64 KiB, P2P on: 2 wrong elements$")):
            with self.subTest(seeded):
                bound = ("--deadline", "20") if seeded == "hang-p2p" else ()
                report = self.nccl("--quick", "--collectives", *bound, fault=seeded, code=LIMITED)
                self.assertRegex(self.fails(report)[0], text)
                self.assertEqual({use: fit for use, (fit, _) in self.fit_and_why(report).items()},
                                 {"copies": "fit", "nccl": "unfit", "custom-all-reduce": "fit"} | LAST)

    def test_faults_without_p2p_too(self):
        """They prove nothing about P2P."""
        for seeded in ("die", "refuse"):
            with self.subTest(seeded):
                report = self.nccl("--quick", "--collectives", fault=seeded)
                self.assertRegex(report["collectives"]["summary"], r"^NCCL: not tested \(fails with P2P: .*; fails without P2P: .*\)$")
                self.assertRegex(" ".join(self.fit_and_why(report)["nccl"]), "^fit NCCL itself was not tested: fails with P2P: ")
                self.assertTrue(report["judgement"]["summary"].endswith("; NCCL: not tested"), report["judgement"]["summary"])

    def test_not_where_p2p_is_unfit(self):
        report = self.report(machine(2, faults=[fault("dead-direction")]), "--full", code=NOT_PROVEN)
        self.assertEqual(report["collectives"]["summary"], "NCCL: not tested (P2P is not fit for it)")

    def test_a_library_that_is_none(self):
        missing, other = self.scratch / "none.so", BUILD / "sim/libcuda.so.1"
        for path, why in ((missing, f"not loaded: {missing}: No such file or directory"), (other, f"{other.resolve()} has no ncclGetVersion"),
                          ("/etc/passwd", "/etc/passwd: invalid ELF header")):
            with self.subTest(path):
                report = self.nccl("--quick", "--collectives", "--nccl", path)
                self.assertEqual(report["collectives"]["summary"], f"NCCL: not tested ({why})")
                self.assertEqual(self.fit_and_why(report)["nccl"], ("fit", f"NCCL itself was not tested: {why}"))

    def test_two_libraries(self):
        second = self.scratch / "libnccl.so.2"
        shutil.copy(SIMULATED_NCCL, second)
        nccl = self.nccl("--quick", "--collectives", LD_LIBRARY_PATH=f"{BUILD}/sim:{self.scratch}")["collectives"]
        self.assertEqual(nccl["library"], str(SIMULATED_NCCL.resolve()))
        self.assertEqual(nccl["notes"][0], f"also found, not used: {second.resolve()}")

    @unittest.skipIf(os.geteuid() != 0, "root gives files away")
    def test_a_users_library(self):
        users = self.scratch / "libnccl.so.2"
        shutil.copy(SIMULATED_NCCL, users)
        os.chown(users, 65534, 65534)
        nccl = self.nccl("--quick", "--collectives", "--nccl", users)["collectives"]
        self.assertEqual(nccl["summary"], f"NCCL: not tested (not loaded: {users}: {users} is owned by user 65534, not by root)")


class GraphAllReduce(Case):
    """The one-shot all-reduce in CUDA graphs: --full, in the second process. Flags, then loads; data changes at each replay."""

    def wrong(self, report):
        return [(w["from"], w["to"], w["kind"], w["words"]) for w in report["wrong"] if w["test"] == "graph-all-reduce"]

    def test_right(self):
        description = machine(3)
        report = self.report(description, "--full")
        pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
        rows = {(r["from"], r["to"], r["bytes"]): r for r in report["all_reduces"]}
        self.assertEqual(set(rows), {(a, b, size) for a, b in pairs for size in (8 << 10, 512 << 10)})
        for (_, _, size), row in rows.items():
            self.assertEqual((row["replays"], row["wrong"]), (2000 if size == 8 << 10 else 100, 0))
            self.assertAlmostEqual(row["time_ns"], 2400 + size / 22, delta=2)
        for pair in report["pairs"]:
            self.assertEqual(pair["verified_bytes"]["graph-all-reduce"], 2000 * (8 << 10) + 100 * (512 << 10))
        text = self.bench(description, "--full", code=PROVEN).stdout
        self.assertIn("All-reduce by loads in a CUDA graph: 8 KiB 2.8 to 2.8 us (2000 replays), 512 KiB 26.2 to 26.2 us (100 replays), "
                      "exact on 6 ordered pairs", text)

    def test_not_without_a_second_process(self):
        report = self.report(machine(2, faults=[fault("lost-stores", graph=True)]))
        self.assertEqual((report["all_reduces"], self.fit(report)["custom-all-reduce"]), ([], "fit"))
        self.assertIn("IPC, all-reduce and atomics", report["not_run"])

    def test_a_stale_flag(self):
        """One direction is named: the other GPU stops as a consequence, and its direction is not blamed."""
        report = self.report(machine(2, faults=[fault("lost-stores", graph=True, after=1000)]), "--full", code=LIMITED)
        self.assertEqual(self.wrong(report), [(0, 1, "lost", 0)])
        self.assertEqual(len(self.fails(report)), 1)
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1: graph-all-reduce: the flag that begins replay 1001 did not arrive within 200 ms$")
        self.assertEqual((self.fit(report)["nccl"], self.fit(report)["custom-all-reduce"]), ("fit", "unfit"))
        self.assertEqual([r["replays"] for r in report["all_reduces"]], [1000, 1000])

    def test_a_replay_that_reads_old_data(self):
        faulty = machine(2, faults=[fault("stale", engine="load", graph=True)])
        report = self.report(faulty, "--full", code=LIMITED)
        self.assertEqual(self.wrong(report), [(0, 1, "stale", 1000 * 1024)])
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1: graph-all-reduce: 1024000 wrong words .*; in replay 2 of 8 KiB: holds the data of replay 1;")
        self.assertEqual([(r["from"], r["to"], r["wrong"]) for r in report["all_reduces"]], [(0, 1, 1024000), (1, 0, 0)])
        self.assertIn("All-reduce by loads in a CUDA graph: WRONG, GPU 0 -> GPU 1: 1024000 wrong elements in 2000 replays of 8 KiB",
                      self.bench(faulty, "--full", code=LIMITED).stdout)
        self.report(faulty, "--full", "--for", "nccl")

    def test_a_hang(self):
        """The second process is ended, and nothing is tried in it afterwards."""
        begin = time.monotonic()
        report = self.report(machine(2, faults=[fault("hang", engine="load", graph=True)]), "--full", code=LIMITED)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertEqual(self.fails(report), ["GPU 0 -> GPU 1 did not answer in graph-all-reduce: the second process: no answer in 10 s"])


class HostMemory(Case):
    """Host memory of each NUMA node as NCCL allocates it: --full."""

    def on_a_node(self, **more):
        """A report on a machine with 40 GB available."""
        self.kernel_log()
        (self.scratch / "root/proc/meminfo").write_text("MemTotal:       65731000 kB\nMemFree:        10000000 kB\nMemAvailable:   40000000 kB\n")
        return self.report(machine(2, **more.pop("machine", {})), "--full", root=self.scratch / "root", **more)

    def test_beyond_4_gib(self):
        report = self.on_a_node()
        self.assertEqual(report["host_memory"], [{"node": 0, "wanted_bytes": 9 << 29, "bytes": 9 << 29, "problem": "",
                                                  "verified_bytes": 9 * ((1 << 20) - 512), "wrong": 0}])
        (self.scratch / "root/proc/meminfo").write_text("MemAvailable:   16000000 kB\n")
        self.assertIn("\nHost memory that GPUs share: NUMA node 0 64 MiB\n",
                      self.bench(machine(2), "--full", root=self.scratch / "root", code=PROVEN).stdout)
        self.assertEqual(self.report(machine(2))["host_memory"], [])

    def test_confined_to_less(self):
        """P2P is right all the same."""
        report = self.on_a_node(machine={"host_mib": 3000})
        self.assertEqual([r["text"] for r in report["judgement"]["remarks"] if r["test"] == "host-memory"],
                         ["host memory of NUMA node 0: 2.5 GiB of 4.5 GiB could be had: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY; "
                          "HMM may confine it to 4 GiB, which uvm_disable_hmm=1 of module nvidia_uvm ends"])

    def test_wrong_data(self):
        report = self.on_a_node(machine={"host_aliased": True}, code=LIMITED)
        self.assertRegex(self.fails(report)[0], r"^host memory of NUMA node 0: \d+ wrong words in 4\.5 GiB, stored by one GPU and loaded by another$")
        self.assertEqual([one["use"] for one in report["judgement"]["fit"] if one["fit"] == "unfit"], ["nccl"])


if __name__ == "__main__":
    unittest.main()
