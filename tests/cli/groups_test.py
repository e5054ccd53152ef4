#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Groups of peers: p2p-bench on the simulated driver proves each group of a machine's cards, and what p2pctl then tells of them."""
import contextlib
import json
import re
import sqlite3
import unittest

import bench_case
from bench_faults_test import Faults as AllFaults
from cli_case import STEP, Case, plan_text, prove
from tree import boot, write

SM = {"2204": [8, 6], "2230": [8, 6], "2684": [8, 9], "2b85": [12, 0]}  # the driver knows no GT 1030
GENERATION = {(8, 6): "ampere", (8, 9): "ada", (12, 0): "blackwell"}
FAULTS = AllFaults.TABLE
del AllFaults  # its tests run in their own file
USES = ["copies", "nccl", "custom-all-reduce"]
RECORDS = {  # record: numbers of its GPUs that a gate shows to be in the way, of the others by group, ordered pairs, what doctor says
    "rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000": ([], {"ampere": 3, "ada": 2, "blackwell": 2}, 10, "2 x RTX 3090 and RTX A6000; 2 x RTX 4090; 2 x RTX 5090;"),
    "rtx3090-x4-one-small-bar1": ([3], {"ampere": 3}, 6, "3 x RTX 3090; RTX 3090 alone;"),
    "rtx5090-x3-display": ([0], {"blackwell": 2}, 2, "2 x RTX 5090; RTX 5090 alone;"),
    "rtx4090-x2-gt1030": ([], {"ada": 2}, 2, "2 x RTX 4090; GT 1030 alone;"),
}


class Groups(Case):
    def measured(self, in_the_way, *words, lie=None, code=bench_case.PROVEN):
        """The report of a proof of the machine without those that the daemon excludes. CUDA has no peers across generations, except
        those of a `lie`, a fault of the simulated driver."""
        devices = [{"name": f"NVIDIA {chip}", "uuid": f"{number + 1:032x}", "address": address, "memory_mib": 128, "free_mib": 96,
                    "sm": SM[chip], "multiprocessors": 8} for number, (address, chip) in enumerate(self.cards())
                   if chip in SM and number not in in_the_way]
        apart = [{"kind": "no-peer", "from": one, "to": other} for one, first in enumerate(devices) for other, second in enumerate(devices)
                 if first["sm"] != second["sm"] and (lie is None or {one, other} != {lie["from"], lie["to"]})]
        bench = bench_case.Case()
        bench.setUp()
        self.addCleanup(bench.doCleanups)
        description = {"link": bench_case.LINK, "patience": 25, "devices": devices, "faults": apart + ([lie] if lie else [])}
        slow = json.dumps({"one_socket.warn": 0.1, "one_socket.fail": 0.1})  # every simulated link is of one rate
        return bench.report(description, "--thresholds", slow, *words, root=self.tree, code=code)

    def cards(self):
        """Address and chip of each NVIDIA GPU."""
        dump = (self.tree / "lspci-xxxx.txt").read_text()
        return [(address, high + low) for address, low, high in
                re.findall(r"^([0-9a-f:.]{12}) (?:VGA compatible|3D) controller: NVIDIA.*\n00: de 10 (\w\w) (\w\w)", dump, re.M)]

    def proven(self, record, report):
        """A tree on which that was proven, with a run in the journal that has the report."""
        boot(self.tree)
        write(self.plan, plan_text(STEP))
        self.json("apply", self.plan)
        boot(self.tree)
        groups = {}
        for gpu in report["gpus"]:
            groups.setdefault(GENERATION[gpu["sm_major"], gpu["sm_minor"]], []).append(gpu)
        ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
        taking_part = {gpu["address"] for gpu in report["gpus"]}
        alone = [address for address, _ in self.cards() if address not in taking_part]
        prove(self.tree, USES, without=alone, alone=dict.fromkeys(alone, "x"),
              gpus=[f"10de:{chip} {address}" for address, chip in self.cards() if address in taking_part],
              groups=[{"name": name, "gpus": [gpu["address"] for gpu in of], "uuids": [gpu["uuid"] for gpu in of]} for name, of in ranked])
        finding = {"verdict": "pass", "summary": report["judgement"]["summary"], "facts": report}
        with contextlib.closing(sqlite3.connect(self.state / "state.db")) as journal, journal:
            journal.execute("INSERT INTO steps SELECT run, 'p2p-proven', status, 0, 0, 0, 0, '', ? FROM steps LIMIT 1", [json.dumps(finding)])
        return {name: [gpu["uuid"] for gpu in of] for name, of in ranked}, alone

    def test_each_record(self):
        for record, (in_the_way, sizes, pairs, cards) in RECORDS.items():
            with self.subTest(record):
                self.fresh()
                self.use(record)
                report = self.measured(in_the_way)
                print(f"\n{record}: {report['judgement']['summary']}")
                self.assertTrue(report["judgement"]["proven"])
                self.assertEqual(len(report["pairs"]), pairs)
                groups, alone = self.proven(record, report)
                self.assertEqual({name: len(gpus) for name, gpus in groups.items()}, sizes)
                self.look(groups, alone, sizes, cards)

    def look(self, groups, alone, sizes, cards):
        """What doctor, env, metrics, features and the report say."""
        doctor = self.ctl("doctor").stdout
        print(doctor)
        self.assertIn("P2P: READY", doctor)
        self.assertIn(cards, doctor)
        self.assertLessEqual(len(doctor.splitlines()), 24)
        env = self.ctl("env").stdout
        metrics = [line for line in self.ctl("metrics").stdout.splitlines() if "p2pd_group_" in line and not line.startswith("#")]
        features = self.ctl("features").stdout
        print("".join(line + "\n" for line in env.splitlines() if "CUDA_VISIBLE" in line), *metrics, sep="\n")
        self.assertEqual(self.json("env")["groups"], groups)
        for name, uuids in groups.items():
            self.assertIn(f'p2pd_group_gpus{{group="{name}"}} {sizes[name]}', metrics)
            self.assertIn(f"p2pd.group-{name}={sizes[name]}\n", features)
            self.assertEqual(f"# {name}: CUDA_VISIBLE_DEVICES={','.join(uuids)}\n" in env, len(groups) > 1 or bool(alone))
        cache = json.loads(self.ctl("env", "--format", "vllm-cache").stdout)
        gpus = sum(sizes.values())
        self.assertEqual(len(cache), gpus ** 2)
        self.assertEqual(sum(cache.values()), gpus + sum(count * (count - 1) for count in sizes.values()))
        proof = json.loads(self.ctl("report", "--json").stdout)["proof"]
        words = [cell for row in proof["bytes"] for cell in row if cell]
        self.assertEqual(words.count("ok"), sum(count * (count - 1) for count in sizes.values()))
        self.assertEqual(set(words), {"ok", "not expected"} if len(groups) > 1 else {"ok"})

    def test_lies_in_one_group(self):
        """Each fault between the two RTX 4090 is named, and no other group is blamed."""
        self.use("rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000")
        for fault, pattern, code in FAULTS:
            with self.subTest(fault["kind"], engine=fault.get("engine")):
                report = self.measured([], "--quick", lie=fault | {"from": 2, "to": 3}, code=code)
                fails = [one for one in report["judgement"]["remarks"] if one["grade"] == "fail"]
                wanted = pattern.replace("GPU 0 -> GPU 1", "GPU 2 -> GPU 3")
                self.assertTrue(any(re.search(wanted, one["text"]) for one in fails), fails)
                self.assertTrue(all({one["from"], one["to"]} == {2, 3} for one in fails), fails)

    def test_lies_across_groups(self):
        """What the driver calls peers of two generations is measured, named where it is wrong, and never fails the proof."""
        self.use("rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000")
        for kind in ("dead-direction", "wrong-byte"):
            with self.subTest(kind):
                report = self.measured([], "--quick", lie={"kind": kind, "engine": "copy", "at": 5000, "from": 0, "to": 2} if kind == "wrong-byte"
                                       else {"kind": kind, "from": 0, "to": 2})
                self.assertEqual(len(report["pairs"]), 12)
                self.assertTrue(any((wrong["from"], wrong["to"]) == (0, 2) for wrong in report["wrong"]), report["wrong"])
                self.assertEqual({one["grade"] for one in report["judgement"]["remarks"] if one["from"] == 0 and one["to"] == 2}, {"warn"})

    def test_all_pairs_are_asked_for(self):
        """A plan that requires pairs across generations is refused at once; two generations with one card each are a person's matter."""
        self.use("rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000")
        write(self.plan, "name: all\ntitle: all\nbased_on: geforce-p2p\ngpus: {require: all}\n")
        told = self.ctl("doctor", self.plan).stdout
        self.assertIn("NOT WORKING", told)
        self.assertIn('Take "require: all" out of "gpus:" of the plan', re.sub(r"\s+", " ", told))
        self.use("rtx3090-rtx4090-mixed")
        told = re.sub(r"\s+", " ", self.ctl("doctor").stdout)
        self.assertIn("NOT POSSIBLE", told)
        self.assertIn("Use two cards of one generation", told)


if __name__ == "__main__":
    unittest.main()
