#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl metrics as the textfile collector of node_exporter meets it: its text and its file."""
import os
import re
import stat
import unittest

from cli_case import Case, OPTIONS, plan_text, STEP
from tree import write

SAMPLE = re.compile(r'(p2pd_[a-z_0-9]+)(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? \S+')


class Metrics(Case):
    def metrics(self, *words, code=0):
        done = self.ctl("metrics", *words, cwd=self.scratch)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def samples(self, text):
        """Lines of samples; each belongs to the HELP and TYPE above it, and no family comes twice."""
        found, family, families = [], "", []
        for line in text.splitlines():
            if line.startswith("# "):
                _, kind, family, _ = line.split(" ", 3)
                families += [family] * (kind == "HELP")
            else:
                self.assertEqual(SAMPLE.fullmatch(line)[1], family)
                found.append(line)
        self.assertEqual(len(families), len(set(families)))
        return found

    def test_nothing_has_run(self):
        found = self.samples(self.metrics())
        self.assertLessEqual({'p2pd_state{state="idle"} 1', "p2pd_ready 0", 'p2pd_fit_for{use="nccl"} 0', "p2pd_reboot_required 0"}, set(found))
        self.assertFalse([line for line in found if line.startswith(("p2pd_run", "p2pd_steps", "p2pd_pair", "p2pd_last_proof"))])
        self.assertFalse(self.state.exists())

    def test_a_run(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        self.json("apply", self.plan)
        text = self.metrics()
        self.assertLessEqual({'p2pd_state{state="rebooting"} 1', "p2pd_reboot_required 1", "p2pd_run_reboots_max 4"}, set(self.samples(text)))
        self.assertIn("\np2pd_run_start_timestamp_seconds ", text)
        self.assertNotIn("p2pd_run_end_", text)
        told = {one["name"]: one["samples"] for one in self.json("metrics")["metrics"]}
        self.assertEqual(told["p2pd_ready"], [{"labels": {}, "value": 0}])
        self.assertEqual(sum(map(len, told.values())), len(self.samples(text)))

    def test_file(self):
        file = self.scratch / "p2pd.prom"
        file.symlink_to(self.scratch / "target")
        (self.scratch / "target").write_text("mine")
        old = os.umask(0o077)
        self.addCleanup(os.umask, old)
        self.assertEqual(self.metrics("--output", "p2pd.prom"), "")
        self.assertFalse(file.is_symlink())
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)
        self.assertEqual(file.read_text(), self.metrics())
        self.assertEqual((self.scratch / "target").read_text(), "mine")
        self.assertEqual([p.name for p in self.scratch.iterdir() if "prom" in p.name], ["p2pd.prom"])
        for words in (["--output", "nowhere/p2pd.prom"], ["--output", "p2pd.prom", "--json"]):
            self.metrics(*words, code=1)
        self.assertFalse((self.scratch / "nowhere").exists())


if __name__ == "__main__":
    unittest.main()
