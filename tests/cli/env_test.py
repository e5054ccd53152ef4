#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl env: the settings of a proof for applications, in each format, as its reader parses it. p2pctl gain: the text for people."""
import json
import os
import pathlib
import re
import shlex
import sqlite3
import subprocess
import unittest
import unittest.mock

from cli_case import Case, STEP, plan_text, prove
from tree import boot, picture, write

REPORT = json.loads((pathlib.Path(__file__).resolve().parents[1] / "sim/two-gpus.report.json").read_text())
USES = ["copies", "nccl", "custom-all-reduce"]
APPLICATIONS = ["nccl", "pytorch", "vllm", "sglang", "llama.cpp", "exllama"]


class Env(Case):
    def prove(self, uses, report=None, record="rtx4090-x8-two-socket"):
        """Writes a run with the report of a proof into the journal, and the file that a proof on this boot leaves."""
        self.fresh()
        self.use(record)
        boot(self.tree)
        write(self.plan, plan_text(STEP))
        self.json("apply", self.plan)
        boot(self.tree)
        dump = (self.tree / "lspci-xxxx.txt").read_text()
        self.addresses = re.findall(r"^([0-9a-f:.]{12}) (?:VGA compatible|3D) controller: NVIDIA", dump, re.M)
        prove(self.tree, uses)
        finding = {"verdict": "pass", "summary": "", "facts": report or REPORT}
        with sqlite3.connect(self.state / "state.db") as journal:
            journal.execute("INSERT INTO steps SELECT run, 'p2p-proven', status, 0, 0, 0, 0, '', ? FROM steps LIMIT 1", [json.dumps(finding)])
        journal.close()
        self.before = picture(self.tree)

    def env(self, *words, code=0):
        done = self.ctl("env", *words)
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        self.assert_unchanged()
        return done.stdout

    def settings(self, *words):
        """(kind, name) to setting."""
        return {(one["kind"], one["name"]): one for one in json.loads(self.env(*words, "--format", "json"))["settings"]}

    def test_without_a_proof(self):
        for words in ([], ["--for", "vllm"], ["--format", "docker"]):
            self.assert_refused(self.ctl("env", *words), "P2P is not proven on this boot", code=3)
        told = self.json("env", code=3)
        self.assertEqual(told["schema"], "p2pd.error/1")
        self.prove(USES)
        boot(self.tree)
        self.before = picture(self.tree)
        self.assert_refused(self.ctl("env"), "not with what is here now: boot_id", code=3)

    def test_all_is_proven(self):
        self.prove(USES)
        told = self.settings()
        self.assertEqual({name: one["value"] for name, one in told.items()},
                         {("variable", "NCCL_P2P_LEVEL"): "SYS", ("variable", "NCCL_GRAPH_REGISTER"): "0", ("variable", "VLLM_SKIP_P2P_CHECK"): "1",
                          ("variable", "SGLANG_SKIP_P2P_CHECK"): "1", ("variable", "GGML_CUDA_P2P"): "1"})
        self.assertIn("crosses NUMA nodes", told["variable", "NCCL_P2P_LEVEL"]["reason"])
        self.assertEqual(self.json("env")["fit_for"], USES)
        self.assertEqual(self.json("env")["settings"], list(told.values()))

    def test_each_application(self):
        self.prove(USES)
        every = self.settings().values()
        for name in APPLICATIONS:
            with self.subTest(name):
                told = list(self.settings("--for", name).values())
                self.assertEqual(told, [one for one in every if name in one["applications"]])
                self.assertTrue(told)
        self.assertEqual(self.ctl("env", "--for", "nobody").returncode, 1)
        self.assertEqual(self.ctl("env", "--format", "xml").returncode, 1)

    def test_custom_all_reduce_is_unfit(self):
        report = json.loads(json.dumps(REPORT))
        why = "GPU 0 -> GPU 1: load\n'$(touch /tmp/never)' is garbled"
        next(one for one in report["judgement"]["fit"] if one["use"] == "custom-all-reduce").update(fit="unfit", why=why)
        self.prove(USES[:2], report)
        told = self.settings()
        self.assertIn(("flag", "--disable-custom-all-reduce"), told)
        self.assertNotIn(("variable", "VLLM_SKIP_P2P_CHECK"), told)
        self.assertEqual(told["flag", "--disable-custom-all-reduce"]["applications"], ["vllm", "sglang"])
        self.assertEqual(told["flag", "--disable-custom-all-reduce"]["reason"], why.replace("\n", " "))
        for form in ("sh", "systemd", "docker"):
            self.assertIn("\n# command line: --disable-custom-all-reduce\n", self.env("--format", form))
        self.assertEqual(self.evaluated(self.env(), "VLLM_SKIP_P2P_CHECK"), "")

    def test_nccl_and_copies_are_unfit(self):
        self.prove(["custom-all-reduce"])
        told = self.settings()
        self.assertEqual(told["variable", "NCCL_P2P_DISABLE"]["value"], "1")
        self.assertNotIn(("variable", "NCCL_P2P_LEVEL"), told)
        self.assertIn(("unset", "GGML_CUDA_P2P"), told)
        self.assertEqual(self.evaluated("GGML_CUDA_P2P=0\n" + self.env(), "GGML_CUDA_P2P"), "")
        self.assertIn("\nUnsetEnvironment=GGML_CUDA_P2P\n", self.env("--format", "systemd"))
        self.assertNotIn("\nGGML_CUDA_P2P", self.env("--format", "docker"))

    def test_nothing_to_set(self):
        self.prove(["nccl"], record="rtx4090-x2-healthy")
        self.assertEqual(self.env("--for", "exllama"), "# P2P is proven on this boot for nccl\n# nothing to set\n")
        self.assertEqual(self.settings("--for", "exllama"), {})
        self.assertEqual(self.evaluated(self.env("--for", "exllama"), "NCCL_P2P_LEVEL"), "")

    def test_cards_that_differ(self):
        report = json.loads(json.dumps(REPORT))
        report["gpus"][1]["name"] = "NVIDIA GeForce RTX 3090"
        self.prove(USES, report)
        told = self.settings("--for", "llama.cpp")["variable", "CUDA_DEVICE_ORDER"]
        self.assertEqual((told["value"], told["applications"]), ("PCI_BUS_ID", APPLICATIONS))

    def test_slower_across_sockets(self):
        report = json.loads(json.dumps(REPORT))
        self.prove(USES)
        gpus, pair = range(len(self.addresses)), report["pairs"][0]
        report["gpus"] = [report["gpus"][0] | {"address": address} for address in self.addresses]
        report["pairs"] = [pair | {"from": a, "to": b, "copy_gb_s": pair["copy_gb_s"] | {"median": 9.0}} for a in gpus for b in gpus if a != b]
        self.prove(USES, report)
        self.assertNotIn(("variable", "NCCL_P2P_LEVEL"), self.settings())

    def test_caches_of_vllm(self):
        self.prove(USES)
        home = self.tree / "home/user/.cache/vllm"
        home.mkdir(parents=True)
        names = ["gpu_p2p_access_cache_for_0,1.json", "gpu_p2p_access_cache_for_0\ntouch never.json", "gpu_p2p_access_cache_for_2.json", "other.json"]
        for name in names:
            (home / name).write_text('{"0->1": false}')
            os.utime(home / name, (1, 1))
        os.utime(home / names[2])
        os.utime(self.tree / "run/p2pd/ready", (1000, 1000))
        self.before = picture(self.tree)
        environment = {"VLLM_CACHE_ROOT": "/home/user/.cache/vllm"}
        with unittest.mock.patch.dict(os.environ, environment):
            told = self.env("--for", "vllm")
            self.assertIn('\n# vllm: "/home/user/.cache/vllm/gpu_p2p_access_cache_for_0,1.json" is older than the proof: remove it, ', told)
            self.assertIn('\n# vllm: "/home/user/.cache/vllm/gpu_p2p_access_cache_for_0\\ntouch never.json" is older', told)
            self.assertEqual(told.count("is older"), 2)
            self.assertNotIn("is older", self.env("--for", "nccl"))
            self.assertNotIn("is older", self.env("--for", "vllm", "--format", "json"))
        self.assertEqual(json.loads(self.env("--format", "vllm-cache")), {"0->0": True, "0->1": True, "1->0": True, "1->1": True})
        report = json.loads(json.dumps(REPORT))
        report["wrong"] = [{"from": 0, "to": 1, "test": "load"}]
        self.prove(USES[:2], report)
        self.assertEqual(json.loads(self.env("--format", "vllm-cache")), {"0->0": True, "0->1": False, "1->0": True, "1->1": True})

    def test_gain(self):
        self.fresh()
        self.assert_refused(self.ctl("gain"), "the GPUs of this machine have not been measured yet")
        self.prove(USES)
        told = self.ctl("gain")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertIn("\nbefore: there is no measurement from before the first change\n", told.stdout)
        self.assertIn("\nNCCL 2.28.3: P2P on 0 of 2, all-reduce 0.7 GB/s, 0.7 without\n", told.stdout)
        self.assertIn("batch of 1 (16 KiB; 8192 values in bfloat16 each), computed for a ring: 3 us\n", told.stdout)
        before = json.loads(json.dumps(REPORT))
        for pair in before["pairs"]:
            pair.update(copy_gb_s=None, chase_ns=None, access=False)
        (self.state / "baseline.json").write_text(json.dumps(before))
        told = self.ctl("gain")
        self.assertNotIn("before:", told.stdout)
        self.assertRegex(told.stdout, r"batch of 1 \(16 KiB; .*: 23 -> 3 us\n")  # 2 (11.0 us + 8 KiB / 17.8 GB/s), 2 (1.2 us + 8 KiB / 25.8 GB/s)
        self.assertRegex(told.stdout, r"batch of 4096 \(64 MiB; .*: 3785 -> 2607 us\n")
        rows = self.json("gain")["all_reduces"]
        self.assertEqual([(row["tokens"], row["bytes"]) for row in rows], [(n, 16384 * n) for n in (1, 16, 512, 4096)])

    def evaluated(self, text, name):
        done = subprocess.run(["sh", "-euc", f'eval "$1"; printf %s "${{{name}-}}"', "sh", text], capture_output=True, text=True, check=True, env={})
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_formats_say_the_same(self):
        self.prove(USES)
        wanted = {name: one["value"] for (_, name), one in self.settings().items()}
        self.assertEqual({name: self.evaluated(self.env(), name) for name in wanted}, wanted)
        docker = [line for line in self.env("--format", "docker").splitlines() if not line.startswith("#")]
        self.assertEqual(dict(line.split("=", 1) for line in docker), wanted)  # docker takes all after "=", quotes too
        device = "--device p2pd.org/p2p=ready"
        self.assertNotIn(device, self.env("--format", "docker"))  # limited, or the file could not be written
        write(self.tree / "run/cdi/p2pd.json", "{}")
        self.before = picture(self.tree)
        self.assertIn(device, self.env("--format", "docker"))
        self.assertNotIn(device, self.env())
        systemd = [line for line in self.env("--format", "systemd").splitlines() if not line.startswith("#")]
        self.assertEqual(systemd.pop(0), "[Service]")
        self.assertEqual(dict(shlex.split(line.removeprefix("Environment="))[0].split("=", 1) for line in systemd), wanted)
        for form in ("sh", "systemd", "docker"):
            for one in self.settings().values():
                self.assertIn(f"# {', '.join(one['applications'])}: {one['reason']}\n", self.env("--format", form))


if __name__ == "__main__":
    unittest.main()
