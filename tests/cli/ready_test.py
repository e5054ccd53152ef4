#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl is-ready, metrics and features by the file that tells what P2P is proven for on this boot: what the plan wants, or less."""
import struct
import unittest

from cli_case import Case, prove
from tree import boot, picture, write

USES = ("copies", "nccl", "custom-all-reduce", "atomics", "managed-memory", "compressible-memory")
ALL, LESS = USES[:3], USES[:2]
NAMESPACE = "feature.node.kubernetes.io/p2pd."


class Proven(Case):
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
        """p2pd_ready and the uses that metrics tell of; they and the labels of features must agree."""
        values = {(one["name"], *sample["labels"].values()): sample["value"] for one in self.json("metrics")["metrics"] for sample in one["samples"]}
        fit = [use for use in USES if values["p2pd_fit_for", use] == 1]
        text = self.ctl("metrics").stdout
        for use in USES:
            self.assertIn(f'\np2pd_fit_for{{use="{use}"}} {int(use in fit)}\n', text)
        labels = self.json("features")["labels"]
        self.assertEqual({name: labels[NAMESPACE + name] for name in ("ready", *(f"fit-for-{use}" for use in USES))},
                         {"ready": "true" if values["p2pd_ready",] else "false", **{f"fit-for-{use}": "true" if use in fit else "false" for use in USES}})
        return values["p2pd_ready",], fit

    def drift(self):
        """Part to p2pd_drift of it."""
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
        self.assert_ready(3, "--for", "nccl,atomics", says=r"\Anot proven fit for atomics\n\Z")  # whatever the plan wants
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
        self.assertEqual(done.returncode, 0, done.stderr)

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
