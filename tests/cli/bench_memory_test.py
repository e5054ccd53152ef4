#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kinds of memory that p2p-bench tests on request only: managed memory and compressible memory, on the simulated driver."""
import re
import unittest

import bench_case
from bench_case import LIMITED, NOT_PROVEN, Case, fault


def machine(gpus, **more):
    """A simulated machine; none of these faults is of a handshake, which may take as long as a loaded host needs."""
    return bench_case.machine(gpus, patience=25, **more)


class MemoryCase(Case):
    BOTH = {(0, 1), (1, 0)}

    def verified(self, report):
        return {(p["from"], p["to"]): p["verified_bytes"][self.TEST] for p in report["pairs"] if self.TEST in p["verified_bytes"]}

    def wrong(self, report):
        return [w for w in report["wrong"] if w["test"] == self.TEST]


class ManagedMemory(MemoryCase):
    """Tested only if it is requested by name, with --full; its faults are told apart from those of the other uses."""

    TEST = "managed"
    WANTED = "--full", "--for", "copies,nccl,managed-memory"

    def test_only_where_it_is_wanted(self):
        for mode in ("--quick",), (), ("--full",):
            for faults in [], [fault("managed-fault")]:
                with self.subTest(mode=mode, faults=faults):
                    report = self.report(machine(2, faults=faults), *mode)
                    self.assertEqual((self.verified(report), self.fit(report)["managed-memory"]), ({}, "not_tested"))
                    why = next(one["why"] for one in report["judgement"]["fit"] if one["use"] == "managed-memory")
                    self.assertEqual(why, "only where it is asked for: on some drivers it takes all GPUs down until a reboot")

    def test_not_without_a_second_process(self):
        """A quick run does not count that against the machine."""
        faulty = machine(2, faults=[fault("managed-fault")])
        report = self.report(faulty, "--for", "managed-memory", code=LIMITED)
        self.assertEqual(self.fails(report), [f"GPU {a} -> GPU {b}: managed was not tested: only --full tests it" for a, b in sorted(self.BOTH)])
        report = self.report(faulty, "--quick", "--for", "managed-memory")
        self.assertEqual(self.fit(report)["managed-memory"], "not_tested")

    def test_right(self):
        report = self.report(machine(2), *self.WANTED)
        self.assertEqual(self.verified(report), dict.fromkeys(self.BOTH, 8 << 20))
        self.assertEqual(self.fit(report)["managed-memory"], "fit")
        self.assertEqual([p["name"] for p in report["phases"]][-2:], ["atomics", "managed memory"])

    def test_wrong_loads(self):
        report = self.report(machine(2, faults=[fault("wrong-byte", engine="load", at=5000)]), *self.WANTED, code=LIMITED)
        wrong = [w for w in report["wrong"] if w["test"] == "managed"]
        self.assertEqual([(w["from"], w["to"], w["offset"], w["words"]) for w in wrong], [(0, 1, 5000, 1)])
        self.assertRegex(wrong[0]["detail"], "^loaded from where they lie")
        self.assertEqual((self.fit(report)["nccl"], self.fit(report)["managed-memory"]), ("fit", "unfit"))

    def test_wrong_migration(self):
        report = self.report(machine(2, faults=[fault("dead-direction", engine="copy")]), *self.WANTED, code=NOT_PROVEN)
        wrong = [w for w in report["wrong"] if w["test"] == "managed"]
        self.assertEqual([(w["from"], w["to"], w["kind"], w["words"]) for w in wrong], [(0, 1, "dropped", (4 << 20) // 8)])
        self.assertRegex(wrong[0]["detail"], "^loaded after they migrated")

    def test_a_migration_that_faults(self):
        """Earlier results are kept, and nothing is tested after the fault."""
        report = self.report(machine(2, faults=[fault("managed-fault")]), *self.WANTED, code=LIMITED)
        first, second = self.fails(report)
        self.assertRegex(first, r"^GPU 0 -> GPU 1: faulted at managed \(.*\): the second process: migration: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS$")
        self.assertRegex(second, r"^GPU 1 -> GPU 0: managed was not tested: the second process: .*\(over GPU 0 -> GPU 1\)$")
        self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "fit", "custom-all-reduce": "fit", "atomics": "not_tested", "managed-memory": "unfit",
                                            "compressible-memory": "not_tested"})
        report = self.report(machine(2, faults=[fault("managed-fault")]), *self.WANTED, "--collectives", code=LIMITED)
        self.assertRegex(report["collectives"]["not_run"], "^the GPUs may be down")

    def test_gpus_that_are_down(self):
        """The Xid of the second process is expected; those that mean that the GPUs need a reboot are not."""
        description = machine(2, faults=[fault("managed-fault")], kernel_log=str(self.kernel_log()))
        report = self.report(description, *self.WANTED, root=self.scratch / "root", code=NOT_PROVEN)
        self.assertEqual([re.search(r"Xid \(PCI:0000:(\d\d):00\): (\d+)", line).groups() for line in report["kernel_log"]],
                         [("01", "154"), ("02", "154")])
        self.assertEqual({fit for use, fit in self.fit(report).items()}, {"unfit"})
        self.assertRegex(self.fails(report)[0], "^GPU 0 -> GPU 1: faulted at managed ")

    def test_not_supported(self):
        description = machine(2)
        description["devices"][1]["managed"] = False
        report = self.report(description, *self.WANTED, code=LIMITED)
        self.assertTrue(all("managed was not tested: not supported" in line for line in self.fails(report)), self.fails(report))


class CompressibleMemory(MemoryCase):
    """Loads first: where they are wrong nothing is stored, because a store could reach memory of the host."""

    TEST = "compressible"
    WANTED = "--full", "--for", "copies,nccl,compressible-memory"

    def lies(self, kind, **more):
        return machine(2, faults=[fault(kind, compressible=True, **more)])

    def test_only_where_it_is_wanted(self):
        report = self.report(self.lies("dead-direction"), "--full")
        self.assertEqual((self.verified(report), self.fit(report)["compressible-memory"]), ({}, "not_tested"))
        self.assertEqual(report["not_run"][self.TEST], "only where it is asked for: on some drivers it reaches host memory instead")

    def test_right(self):
        report = self.report(machine(2), *self.WANTED)
        self.assertEqual(self.verified(report), dict.fromkeys(self.BOTH, 8 << 20))
        self.assertEqual(self.fit(report)["compressible-memory"], "fit")

    def test_loads_that_come_from_elsewhere(self):
        """4 MiB, not 8: the stores were not tried."""
        report = self.report(self.lies("dead-direction", engine="load"), *self.WANTED, code=LIMITED)
        self.assertEqual([(w["from"], w["to"], w["bytes"], w["words"]) for w in self.wrong(report)], [(0, 1, 4 << 20, (4 << 20) // 8)])
        self.assertRegex(self.wrong(report)[0]["detail"], "^loaded from a peer")
        self.assertEqual((self.verified(report)[0, 1], self.verified(report)[1, 0]), (0, 8 << 20))
        self.assertEqual((self.fit(report)["nccl"], self.fit(report)["compressible-memory"]), ("fit", "unfit"))

    def test_stores_that_go_elsewhere(self):
        report = self.report(self.lies("dead-direction", engine="store"), *self.WANTED, code=LIMITED)
        self.assertEqual([(w["from"], w["to"]) for w in self.wrong(report)], [(0, 1)])
        self.assertRegex(self.wrong(report)[0]["detail"], "^stored to a peer")
        self.assertEqual(self.fit(report)["compressible-memory"], "unfit")

    def test_a_process_that_hangs_is_ended(self):
        report = self.report(self.lies("hang", engine="load"), *self.WANTED, code=LIMITED)
        self.assertRegex(self.fails(report)[0], "^GPU 0 -> GPU 1 did not answer in compressible: ")
        self.assertEqual(self.fit(report)["copies"], "fit")

    def test_not_supported(self):
        description = machine(2)
        description["devices"][1]["compressible"] = False
        report = self.report(description, *self.WANTED, code=LIMITED)
        self.assertTrue(all("compressible was not tested: not supported" in line for line in self.fails(report)), self.fails(report))


if __name__ == "__main__":
    unittest.main()
