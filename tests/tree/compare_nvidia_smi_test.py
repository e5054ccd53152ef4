#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/bench/compare-nvidia-smi on what a real machine's nvidia-smi printed, and on differences put into it."""
import copy
import functools
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/bench/compare-nvidia-smi"
RECORD = json.loads((ROOT / "tests/machines/captured/h200-x4-vm.json").read_text())

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/sim"))
from tree import MACHINES  # noqa: E402

loader = importlib.machinery.SourceFileLoader("compare_nvidia_smi", str(SCRIPT))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)


def recorded(name):
    return "".join(line + "\n" for line in RECORD["commands"][f"nvidia-smi-{name}"]["output"])


def query_xml():
    """The record's "nvidia-smi -q", the fields that are read, in the form of "-q -x"."""
    gpus = []
    for part in re.split(r"^GPU ", recorded("q"), flags=re.M)[1:]:
        def after(section, name):
            return re.search(rf"^ +{section}\n(?:.*\n)*?^ +{name} +: (.*)$", part, re.M)[1]
        gpus.append(f"""<gpu id="{part.splitlines()[0]}">
          <pci><pci_gpu_link_info>
            <pcie_gen><max_link_gen>{after('PCIe Generation', 'Max')}</max_link_gen>
              <current_link_gen>{after('PCIe Generation', 'Current')}</current_link_gen></pcie_gen>
            <link_widths><max_link_width>{after('Link Width', 'Max')}</max_link_width>
              <current_link_width>{after('Link Width', 'Current')}</current_link_width></link_widths>
          </pci_gpu_link_info></pci>
          <fb_memory_usage><total>{after('FB Memory Usage', 'Total')}</total></fb_memory_usage>
          <bar1_memory_usage><total>{after('BAR1 Memory Usage', 'Total')}</total></bar1_memory_usage></gpu>""")
    return f"<?xml version=\"1.0\" ?>\n<nvidia_smi_log>{''.join(gpus)}</nvidia_smi_log>\n"


@functools.cache
def doctor_text():
    """"p2pctl doctor --json" of the record."""
    return subprocess.run([MACHINES.parent / "bin/p2pctl", "doctor", "--json", "--root", MACHINES / "h200-x4-vm"], capture_output=True, text=True, timeout=60).stdout


def doctor():
    return json.loads(doctor_text())


def compared(facts=None, query=None, later=None, topology=None):
    before = script.parse_query(query or query_xml())
    return script.compare(facts or script.parse_doctor(json.dumps(doctor())), before, script.parse_query(later) if later else before,
                          script.parse_matrix(topology or recorded("topo-m")), script.parse_matrix(recorded("topo-p2p-r")))


class Parsing(unittest.TestCase):
    def test_topology(self):
        cells = script.parse_matrix(recorded("topo-m"))
        self.assertEqual(len(cells), 12)
        self.assertEqual(set(cells.values()), {"NV18"})

    def test_topology_with_nics(self):
        cells = script.parse_matrix("\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\nGPU0\t X \tPHB\tPIX\t0-63\nGPU1\tPHB\t X \tSYS\t0-63\n"
                                    "NIC0\tPIX\tSYS\t X \n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n")
        self.assertEqual(cells, {(0, 1): "PHB", (1, 0): "PHB"})

    def test_topologies_of_the_field(self):
        """Cases topo-m-4x3090-nvlink-pairs and topo-m-5gpu-epyc-tabs: as printed, an empty cell before the last column."""
        links = script.parse_matrix("\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
                                    "GPU0\t X \tNV4\tPHB\tNODE\t0-31\t0\t\tN/A\nGPU1\tNV4\t X \tPHB\tNODE\t0-31\t0\t\tN/A\n"
                                    "GPU2\tPHB\tPHB\t X \tNV4\t0-31\t0\t\tN/A\nGPU3\tNODE\tNODE\tNV4\t X \t0-31\t0\t\tN/A\n")
        self.assertEqual((len(links), links[0, 1], links[1, 2], links[3, 0]), (12, "NV4", "PHB", "NODE"))
        names = [f"GPU{i}" for i in range(5)]
        rows = [n + "".join("\t X \t" if n == m else "\tNODE" for m in names).replace("\t\t", "\t") + "\t0-15\t0\t\tN/A" for n in names]
        cells = script.parse_matrix("\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" + "\n".join(rows))
        self.assertEqual((len(cells), set(cells.values())), (20, {"NODE"}))

    def test_peers(self):
        self.assertEqual(set(script.parse_matrix(recorded("topo-p2p-r")).values()), {"OK"})

    def test_query(self):
        gpus = script.parse_query(query_xml())
        self.assertEqual([g["address"] for g in gpus], [f"0000:00:0{n}.0" for n in (6, 7, 8, 9)])
        self.assertEqual(gpus[0], {"address": "0000:00:06.0", "bar1_mib": 262144, "vram_mib": 143771, "generation": 5,
                                   "generation_most": 5, "width": 16, "width_most": 16})
        self.assertEqual(script.parse_query("<x><gpu id='00010000:0A:00.0'><bar1_memory_usage><total>N/A</total></bar1_memory_usage></gpu></x>"),
                         [{"address": "10000:0a:00.0"}])

    def test_first_step_of_a_check_counts(self):
        text = json.dumps({"steps": [{"check": "a", "facts": {"x": 1}}, {"check": "a", "facts": {"x": 2}}, {"check": "b"}, 3]})
        self.assertEqual(script.parse_doctor(text), {"a": {"x": 1}})


class Comparing(unittest.TestCase):
    def test_the_record_agrees(self):
        out = compared()
        self.assertEqual(out.different(), [])
        self.assertEqual(len(out.rows), 4 * (1 + 4) + 12)  # BAR1 and the link of each GPU, reads of each pair
        self.assertTrue(any("VRAM" in field for field in out.alone))

    def test_each_difference_is_seen(self):
        facts = script.parse_doctor(json.dumps(doctor()))
        seeds = [("gpu-inventory", "gpus", "bar1_bytes", 268435456), ("pcie-links", "links", "width", 8),
                 ("pcie-links", "links", "generation_most", 4), ("driver-peers", "pairs", "read", "CNS")]
        for check, table, key, value in seeds:
            with self.subTest(f"{check} {key}"):
                other = copy.deepcopy(facts)
                other[check][table][0][key] = value
                self.assertEqual([row[1] for row in compared(other).different()], [256 if key == "bar1_bytes" else value])

    def test_an_idle_link_may_change_in_between(self):
        slow = query_xml().replace("<current_link_gen>5", "<current_link_gen>1")
        self.assertEqual(compared(query=slow, later=query_xml()).different(), [])
        self.assertEqual(len(compared(query=slow).different()), 4)

    def test_classes(self):
        facts = script.parse_doctor(json.dumps(doctor()))
        for ours, level, same in (("PXB", "PXB", True), ("PIX", "PHB", False), ("NODE", "NODE", True), ("SYS", "PHB", False), (None, "PHB", None)):
            with self.subTest(f"{ours} {level}"):
                for pair in facts["pcie-links"]["pairs"]:
                    pair["topology"] = ours
                rows = [row for row in compared(facts, topology=recorded("topo-m").replace("NV18", level)).rows if "class" in row[0]]
                self.assertEqual([row[3] for row in rows], [] if same is None else [same] * 6)

    def test_nvlink(self):
        facts = script.parse_doctor(json.dumps(doctor()))
        for pair in facts["driver-peers"]["pairs"]:
            pair.update(nvlink="OK", topology="SYS")
        self.assertEqual(compared(facts).different(), [])
        self.assertEqual(len(compared(facts, topology=recorded("topo-m").replace("NV18", "SYS")).different()), 12)


class Running(unittest.TestCase):
    """The script itself, with programs that print what was recorded."""

    def setUp(self):
        self.bin = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-compare-"))
        self.addCleanup(shutil.rmtree, self.bin)
        for name, text in (("q", query_xml()), ("m", recorded("topo-m")), ("r", recorded("topo-p2p-r"))):
            (self.bin / name).write_text(text)
        self.program("nvidia-smi", f'case "$*" in "-q -x") cat {self.bin}/q;; "topo -m") cat {self.bin}/m;; '
                                   f'"topo -p2p r") cat {self.bin}/r;; *) exit 9;; esac')
        self.doctor(doctor())

    def program(self, name, body):
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def doctor(self, answer, code=4):
        (self.bin / "doctor").write_text(answer if isinstance(answer, str) else json.dumps(answer))
        self.program("p2pctl", f'[ "$1 $2" = "doctor --json" ] && grep -q "check: driver-peers" "$3" || exit 9; '
                               f'cat {self.bin}/doctor; exit {code}')

    def run_it(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], capture_output=True, text=True, timeout=60,
                              env={"PATH": f"{self.bin}:{os.environ['PATH']}", **environment})

    def test_same(self):
        for arguments, environment in (((), {}), ((str(self.bin / "p2pctl"),), {}), ((), {"P2PCTL": str(self.bin / "p2pctl")})):
            done = self.run_it(*arguments, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("32 fields compared: 32 the same, 0 different", done.stdout)

    def test_different(self):
        answer = doctor()
        next(step for step in answer["steps"] if step["check"] == "driver-peers")["facts"]["pairs"][0]["read"] = "GNS"
        self.doctor(answer)
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"P2P read \(driver-peers\) +GNS +OK +NO")

    def test_nothing_to_compare(self):
        for answer, code in (({"steps": []}, 0), ("no JSON", 0), (doctor(), 1), ({"steps": [{"check": "driver-peers", "facts": {"pairs": [3]}}]}, 0)):
            self.doctor(answer, code)
            done = self.run_it()
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("compare-nvidia-smi: ", done.stderr)
        self.assertEqual(self.run_it("/nonexistent/p2pctl").returncode, 2)


if __name__ == "__main__":
    unittest.main()
