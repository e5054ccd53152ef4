#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Output of p2pctl for programs: metrics, as text and as a file for the textfile collector of node_exporter; features, labels with an
expiry time, as for Kubernetes' node feature discovery; is-ready. All agree on the uses that P2P is proven for."""
import datetime
import os
import re
import stat
import struct
import unittest

from cli_case import Case, OPTIONS, plan_text, prove, STEP
from tree import boot, picture, write

NAMESPACE = "feature.node.kubernetes.io/"
USES = ("copies", "nccl", "custom-all-reduce", "atomics", "managed-memory", "compressible-memory")
ALL, LESS = USES[:3], USES[:2]
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


class Features(Case):
    def labels(self, text):
        """Labels as the local source of node feature discovery reads them; labels above the first directive would never expire."""
        first, *lines = text.splitlines()
        end = datetime.datetime.strptime(first, "# +expiry-time=%Y-%m-%dT%H:%M:%SZ")
        left = (end - datetime.datetime.utcnow()).total_seconds()
        self.assertTrue(60 < left <= 600, left)
        return dict(line.split("=") for line in lines)

    def test_nothing_has_run(self):
        done = self.ctl("features")
        self.assertEqual(done.returncode, 0, done.stderr)
        fit = {f"{NAMESPACE}p2pd.fit-for-{use}": "false" for use in USES}
        self.assertEqual(self.labels(done.stdout), {NAMESPACE + "p2pd.ready": "false", NAMESPACE + "p2pd.state": "idle"} | fit)
        self.assertEqual(self.json("features")["labels"], self.labels(done.stdout))

    def test_a_run_in_a_file(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        self.json("apply", self.plan)
        file = self.scratch / "p2pd"
        file.write_text("old")
        done = self.ctl("features", "--output", file)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(self.labels(file.read_text())[NAMESPACE + "p2pd.state"], "rebooting")
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)

    def test_what_cannot_be_written(self):
        for words in (["--output", self.scratch / "nowhere/p2pd"], ["--json", "--output", self.scratch / "p2pd"]):
            done = self.ctl("features", *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn("p2pctl: ", done.stderr)


class Proven(Case):
    """By the file that tells the uses that P2P is proven for on this boot: all that the plan requires, or less."""

    def setUp(self):
        super().setUp()
        boot(self.tree)

    def prove(self, uses, limited=False, **other):
        prove(self.tree, uses, limited, **other)
        self.before = picture(self.tree)

    def assert_ready(self, code, *words, says=r"\A\Z"):
        done = self.ctl("is-ready", *words)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        self.assertRegex(done.stdout, says)

    def fit_for(self):
        """p2pd_ready and the uses in metrics; they and the labels of features must agree."""
        values = {(one["name"], *sample["labels"].values()): sample["value"] for one in self.json("metrics")["metrics"] for sample in one["samples"]}
        fit = [use for use in USES if values["p2pd_fit_for", use] == 1]
        text = self.ctl("metrics").stdout
        for use in USES:
            self.assertIn(f'\np2pd_fit_for{{use="{use}"}} {int(use in fit)}\n', text)
        labels = self.json("features")["labels"]
        self.assertEqual({name: labels[f"{NAMESPACE}p2pd.{name}"] for name in ("ready", *(f"fit-for-{use}" for use in USES))},
                         {"ready": "true" if values["p2pd_ready",] else "false", **{f"fit-for-{use}": "true" if use in fit else "false" for use in USES}})
        return values["p2pd_ready",], fit

    def drift(self):
        """Part to its value of p2pd_drift."""
        return {sample["labels"]["part"]: sample["value"] for one in self.json("metrics")["metrics"] if one["name"] == "p2pd_drift" for sample in one["samples"]}

    def test_nothing_is_proven(self):
        for words in ((), ("--for", "nccl"), ("--for", "copies,atomics")):
            self.assert_ready(3, *words, says="P2P is not proven on this boot")
        self.assertEqual(self.fit_for(), (0, []))
        self.assertEqual(self.drift(), {})

    def test_ready(self):
        self.prove(ALL)
        self.assertEqual(self.drift(), dict.fromkeys(("boot_id", "build_ids", "gpus", "machine_id", "modules"), 0))
        for words in ((), ("--for", "nccl"), ("--for", "nccl,custom-all-reduce"), ("--for", "nccl", "--for", "copies"), ("--for=copies",)):
            with self.subTest(words=words):
                self.assert_ready(0, *words)
        self.assert_ready(3, "--for", "nccl,atomics", says=r"\Anot proven fit for atomics\n\Z")  # whatever the plan requires
        self.assertEqual(self.json("is-ready"), {"schema": "p2pd.ready/1", "ready": True, "reason": "", "fit_for": list(ALL)})
        self.assertEqual(self.fit_for(), (1, list(ALL)))

    def test_limited(self):
        self.prove(LESS, limited=True)
        self.assert_ready(5, says=r"\Afit for less than the plan wants: copies, nccl\n\Z")
        for words in (("--for", "nccl"), ("--for", "copies,nccl")):
            self.assert_ready(0, *words)
        for words in (("--for", "custom-all-reduce"), ("--for", "nccl,custom-all-reduce")):
            self.assert_ready(3, *words, says=r"\Anot proven fit for custom-all-reduce\n\Z")
        self.assertEqual(self.json("is-ready", code=5)["fit_for"], list(LESS))
        self.assertIs(self.json("is-ready", "--for", "nccl")["ready"], True)
        self.assertIs(self.json("is-ready", "--for", "atomics", code=3)["ready"], False)
        self.assertEqual(self.fit_for(), (0, list(LESS)))
        done = self.ctl("status")
        self.assertEqual(done.returncode, 3, done.stderr)  # no run has proven it

    def test_what_was_proven_elsewhere_counts_for_nothing(self):
        for limited in (False, True):
            for other in ({"boot_id": "another"}, {"gpus": []}, {"modules": {"nvidia": "another"}}, {"build_ids": {"nvidia": "another"}},
                          {"machine_id": "another"}):
                with self.subTest(limited=limited, other=other):
                    self.prove(ALL, limited, **other)
                    for words in ((), ("--for", "nccl")):
                        self.assert_ready(3, *words, says=f"not with what is here now: {next(iter(other))}")
                    self.assertEqual(self.fit_for(), (0, []))
                    self.assertEqual([part for part, changed in self.drift().items() if changed], [next(iter(other))])
                    (self.tree / "run/p2pd" / ("limited" if limited else "ready")).unlink()

    def test_build_ids(self):
        """A proof of an older p2pd has none; the rest are compared with what is loaded."""
        path = self.tree / "sys/module/nvidia/notes/.note.gnu.build-id"
        path.parent.mkdir(parents=True)
        path.write_bytes(struct.pack("<III", 4, 2, 3) + b"GNU\0" + b"\x3f\xa2")
        for proven in ({}, {"build_ids": {"nvidia": "3fa2"}}):
            self.prove(ALL, **proven)
            self.assert_ready(0)
        self.prove(ALL, build_ids={"nvidia": "3fa3"})
        self.assert_ready(3, says="not with what is here now: build_ids")

    def test_bad_words(self):
        for limited in (None, False, True):
            if limited is not None:
                self.prove(LESS if limited else ALL, limited)
            for use in ("nvshmem", "NCCL", "", "custom_all_reduce", "nccl,atomics,x", "all", "-"):
                with self.subTest(use=use, limited=limited):
                    self.assert_refused(self.ctl("is-ready", "--for", use), "--for: .* is not a use of P2P; known: copies, nccl, custom-all-reduce, atomics, managed-memory, compressible-memory$")
        done = self.ctl("is-ready", "nccl")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("nccl", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
