#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shipped YAML fits its schema, each schema rejects seeded mistakes, and p2pctl agrees with the schema of plans.

P2PD_BUILD names the build directory whose bin/p2pctl is asked; default: build/dev.
"""
import copy
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
BUILD = pathlib.Path(os.environ.get("P2PD_BUILD") or ROOT / "build/dev")
P2PCTL = BUILD / "bin/p2pctl"


def validator(name):
    schema = json.loads((CONFIG / f"schema/{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def load(path):
    return yaml.safe_load(path.read_text())


def put(document, path, value):
    """Sets the value at a path of keys and indices; the value DROP removes it."""
    for key in path[:-1]:
        document = document[key]
    if value is DROP:
        del document[path[-1]]
    else:
        document[path[-1]] = value


DROP = object()

# schema -> shipped files
SHIPPED = {
    "plan": sorted((CONFIG / "plans").glob("*.yaml"), key=lambda file: file.name != "geforce-p2p.yaml"),  # the one that has every key first
    "config": [CONFIG / "p2pd.yaml"],
    "gpus": [CONFIG / "gpus.yaml"],
    "host-bridges": [CONFIG / "host-bridges.yaml"],
    "catalogue": [CONFIG / "catalogue.yaml"],
    "kernel-table": [CONFIG / "kernel-table.yaml"],
    "signatures": [CONFIG / "signatures.yaml"],
    "bench": [ROOT / "tests/sim/two-gpus.report.json"],
}

# schema -> (path, value) that, put into the first shipped file, makes it wrong
MISTAKES = {
    "signatures": [
        (["schema"], "p2pd.signatures/2"), (["signatures"], []), (["signatures", 0, "log"], "dmesg"),
        (["signatures", 0, "means"], "bad"), (["signatures", 0, "patterns"], []), (["signatures", 0, "fix"], ""),
        (["signatures", 0, "cured_by"], []), (["signatures", 0, "refutes_proof"], "yes"),
    ],
    "bench": [
        (["schema"], "p2pd.bench/2"), (["seed"], DROP), (["pairs", 0, "from"], "0"), (["pairs", 0, "copy_gb_s"], 25.8),
        (["gpus", 0, "memory_bytes"], -1), (["wrong"], {}), (["judgement", "proven"], "yes"), (["speed"], 1),
    ],
    "plan": [
        (["stpes"], []), (["name"], "Geforce P2P"), (["title"], DROP), (["steps"], []), (["steps"], {}),
        (["policy", "reboots"], -1), (["policy", "reboots"], "4"), (["policy", "on_failure"], "undo"),
        (["steps", 0, "install"], "x"), (["steps", 0, "gate"], DROP), (["steps", 0, "requires"], "gpus"),
        (["steps", 0, "with"], [1]), (["steps", 0, "title"], ""), (["steps", 0, "after"], "gpus"),
    ],
    "config": [(["plann"], "x"), (["plan"], 3), (["plan"], ""), (["plan"], "plans/x.yaml"), (["plan"], "x.yaml"),
               (["log_level"], "loud")],
    "gpus": [
        (["schema"], "p2pd.gpus/2"), (["gpus"], []), (["gpus", 0, "id"], "10DE:1340"), (["gpus", 0, "vram_mib"], "2048"),
        (["gpus", 0, "vram_mib"], 2048), (["gpus", 0, "vram"], 1), (["gpus", 0, "architecture"], "Maxwell"),
        (["gpus", 0, "chip"], "gm108"), (["gpus", 0, "name"], DROP), (["architectures"], DROP), (["architectures", "Fermi"], {}),
        (["architectures"], []), (["architectures", "Ada"], []), (["architectures", "Ada"], [1]), (["architectures", "Ada"], ["AD102", "AD102"]),
        (["gpus", 0, "id"], "10de:00:1"), (["gpus", 0, "segment"], DROP), (["gpus", 0, "vram_mib"], DROP),
    ],
    "host-bridges": [
        (["schema"], "p2pd.host-bridges/2"), (["bridges"], []), (["bridges", 0, "id"], "1022"), (["bridges", 0, "name"], DROP),
        (["bridges", 0, "linux"], "no"), (["bridges", 0, "linux"], DROP), (["bridges", 0, "reports"], []),
    ],
    "catalogue": [
        (["schema"], "p2pd.catalogue/1"), (["entries"], []), (["releases", "550.54.15", "commit"], "12933b2d3c20"),
        (["releases", "550.54.15", "runfile", "sha256"], None), (["patches", "tinygrad/550.54.15-p2p", "branch"], DROP),
        (["patches", "tinygrad/550.54.15-p2p", "enabled"], True), (["releases", "550.54.15", "known"], DROP),
    ],
    "kernel-table": [
        (["schema"], "p2pd.kernel-table/2"), (["schema"], DROP), (["kernels"], DROP), (["releases"], DROP), (["releases"], []), (["rows"], {}),
        (["kernels"], {"sid": {"release": "x", "distribution": "x"}}), (["kernels"], {"6.1.192": {"release": "6.1.0-9-amd64"}}),
        *((["releases"], {"570.86.16": row}) for row in (
            {}, {"source": "", "tree": "1" * 40, "kernels": {}}, {"source": "x", "tree": "1" * 12, "kernels": {}}, {"source": "x", "tree": "1" * 40})),
        *((["releases"], {"570.86.16": {"source": "x", "tree": "1" * 40, "kernels": kernels}}) for kernels in (
            [], {"sid": "builds"}, {"6.1.192": True}, {"6.1.192": "fails"}, {"6.1.192": "fails: "}, {"6.1.192": "built"})),
    ],
}

STEP = {"gate": "quiet", "title": "Quiet", "check": "kernel-cmdline", "with": {"arguments": ["quiet"]}}
NEED = {"requires": "loud", "title": "Loud", "check": "kernel-cmdline", "with": {"arguments": ["loud"]}}
FIXED = {**STEP, "fix": "kernel-cmdline", "needs": ["loud"]}


def plan(*steps, **more):
    return {"name": "trial", "title": "A trial", "steps": list(steps), **more}


def without(document, *keys):
    return {key: value for key, value in document.items() if key not in keys}


# Plans on which schema and program must agree: (description, plan, validity)
PLANS = [
    ("the least", plan(STEP), True),
    ("a fix", plan({**STEP, "fix": "kernel-cmdline"}), True),
    ("a need", plan(NEED, FIXED), True),
    ("a whole policy", plan(STEP, policy={"reboots": 0, "attempts": 10, "on_failure": "keep", "reboot": "external"}), True),
    ("an empty policy", plan(STEP, policy={}), True),
    ("GPUs that are left out", plan(STEP, gpus={"exclude": ["0000:65:00.0", "65:00.0", "10de:1d01"]}), True),
    ("no GPU that is left out", plan(STEP, gpus={}), True),
    ("what names no GPU", plan(STEP, gpus={"exclude": ["1030"]}), False),
    ("all GPUs", plan(STEP, gpus={"exclude": ["10de:1d01"], "require": "all"}), True),
    ("some GPUs", plan(STEP, gpus={"require": "some"}), False),
    ("empty lists", plan({**STEP, "after": [], "needs": []}), True),
    ("a need without a fix", plan(NEED, STEP, {**STEP, "gate": "a", "needs": ["loud"]}), True),
    ("a need of a need", plan(NEED, STEP, {**NEED, "requires": "a", "fix": "kernel-cmdline", "needs": ["loud"]}), True),
    ("empty lists of a requires step", plan(STEP, {**NEED, "after": [], "needs": []}), True),
    ("texts", plan({**STEP, "why": "because", "operator": "do it"}), True),
    ("after", plan(STEP, {**STEP, "gate": "then", "after": ["quiet"]}), True),
    ("64 letters", plan(STEP, name="a" * 64), True),
    ("256 steps", plan(STEP, *({**STEP, "gate": f"s{i}"} for i in range(255))), True),
    ("an object", plan(STEP, {"gate": "options", "title": "Options", "check": "modprobe-options",
                              "with": {"module": "nvidia", "options": {"NVreg_EnableResizableBar": 1, "NVreg_X": "a"}}}), True),
    ("a list", [STEP], False),
    ("no steps", plan(), False),
    ("257 steps", plan(STEP, *({**STEP, "gate": f"s{i}"} for i in range(256))), False),
    ("65 letters", plan(STEP, name="a" * 65), False),
    ("a name in capitals", plan(STEP, name="Trial"), False),
    ("no title", without(plan(STEP), "title"), False),
    ("an empty title", plan(STEP, title=""), False),
    ("a title that is a list", plan(STEP, title=["A", "trial"]), False),
    ("an unknown key", plan(STEP, stpes=[]), False),
    ("an unknown key of a step", plan({**STEP, "tilte": "x"}), False),
    ("an unknown key of the policy", plan(STEP, policy={"retries": 2}), False),
    ("a policy that is empty text", plan(STEP, policy=None), False),
    ("only checks", {"name": "trial", "title": "A trial", "based_on": "geforce-p2p", "fixes": "none"}, True),
    ("a step more", {**plan(STEP), "based_on": "geforce-p2p"}, True),
    ("neither steps nor another plan", {"name": "trial", "title": "A trial"}, False),
    ("fixes of another kind", plan(STEP, fixes="some"), False),
    ("21 reboots", plan(STEP, policy={"reboots": 21}), False),
    ("half a reboot", plan(STEP, policy={"reboots": 0.5}), False),
    ("no attempt", plan(STEP, policy={"attempts": 0}), False),
    ("another end", plan(STEP, policy={"on_failure": "explode"}), False),
    ("no kind of step", plan(STEP, without(STEP, "gate")), False),
    ("two kinds of step", plan(STEP, {**STEP, "gate": "a", "requires": "b"}), False),
    ("no check", plan(STEP, {"gate": "a", "title": "A"}), False),
    ("a requires step that waits", plan(STEP, {**NEED, "after": ["quiet"]}), False),
    ("a need of a requires step without a fix", plan(NEED, STEP, {**NEED, "requires": "a", "needs": ["loud"]}), False),
    ("after as a text", plan(STEP, {**STEP, "gate": "a", "after": "quiet"}), False),
    ("an empty why", plan({**STEP, "why": ""}), False),
    ("parameters as a list", plan({**STEP, "with": ["quiet"]}), False),
    ("parameters as nothing", plan({**STEP, "with": None}), False),
    ("an empty parameter", plan(STEP, {**STEP, "gate": "a", "with": {"arguments": ["quiet", ""]}}), False),
]

# Faults that only the program can find: the schema accepts them.
PROGRAM_ONLY = [
    ("the same name twice", plan(STEP, STEP)),
    ("an unknown check", plan(STEP, {**STEP, "gate": "a", "check": "kernel-cmdlin"})),
    ("an unknown fix", plan(STEP, {**STEP, "gate": "a", "fix": "kernel-cmdlin"})),
    ("an unknown parameter", plan(STEP, {**STEP, "gate": "a", "with": {"arguments": ["x"], "colour": "red"}})),
    ("a missing parameter", plan(STEP, without({**STEP, "gate": "a"}, "with"))),
    ("a parameter of another type", plan(STEP, {**STEP, "gate": "a", "with": {"arguments": {"x": 1}}})),
    ("after nothing", plan(STEP, {**STEP, "gate": "a", "after": ["nothing"]})),
    ("after itself", plan(STEP, {**STEP, "gate": "a", "after": ["a"]})),
    ("after what comes later", plan({**STEP, "after": ["b"]}, {**STEP, "gate": "b"})),
    ("needs a gate", plan(STEP, {**FIXED, "gate": "a", "needs": ["quiet"]})),
]

class Schemas(unittest.TestCase):
    def test_shipped_files_fit(self):
        for name, files in SHIPPED.items():
            self.assertTrue(files, name)
            for file in files:
                with self.subTest(file=file.name):
                    validator(name).validate(load(file))

    def test_every_shipped_yaml_has_a_schema(self):
        shipped = {p for files in SHIPPED.values() for p in files if CONFIG in p.parents}
        self.assertEqual(shipped, set(CONFIG.rglob("*.yaml")))

    def test_each_gpu_is_of_one_architecture(self):
        table = load(CONFIG / "gpus.yaml")
        chips = [chip for chips in table["architectures"].values() for chip in chips]
        self.assertEqual(len(chips), len(set(chips)))
        self.assertLessEqual({row["chip"] for row in table["gpus"]}, set(chips))

    def test_seeded_mistakes_are_rejected(self):
        self.assertEqual(SHIPPED.keys(), MISTAKES.keys())
        for name, mistakes in MISTAKES.items():
            good = load(SHIPPED[name][0])
            for path, value in mistakes:
                bad = copy.deepcopy(good)
                put(bad, path, value)
                with self.subTest(schema=name, path=path, value=value if value is not DROP else "dropped"):
                    self.assertFalse(validator(name).is_valid(bad))


@unittest.skipUnless(P2PCTL.exists() or "P2PD_BUILD" in os.environ, f"no {P2PCTL}; P2PD_BUILD names another build")
class Program(unittest.TestCase):
    """`p2pctl explain STEP --plan FILE` reads FILE: exit 0 when it is good, 1 and a line that names it when not."""

    def explain(self, document):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "trial.yaml"
            file.write_text(json.dumps(document, indent=1))  # JSON is YAML, and safe_dump would make aliases
            steps = document.get("steps", []) if isinstance(document, dict) else []
            step = next((s["gate"] for s in steps if "gate" in s), "gpus" if "based_on" in document else "quiet")
            done = subprocess.run([P2PCTL, "explain", step, "--plan", file], capture_output=True, text=True, timeout=60)
        if done.returncode:
            self.assertRegex(done.stderr, rf"^p2pctl: {re.escape(str(file))}:\d+: ")
        return done.returncode

    def test_schema_and_program_agree(self):
        schema = validator("plan")
        for what, document, good in PLANS:
            with self.subTest(what):
                self.assertEqual((schema.is_valid(document), self.explain(document)), (good, 0 if good else 1))

    def test_schema_rejects_nothing_that_only_the_program_knows(self):
        schema = validator("plan")
        for what, document in PROGRAM_ONLY:
            with self.subTest(what):
                self.assertEqual((schema.is_valid(document), self.explain(document)), (True, 1))

    def test_tables_are_compiled_in_as_others_read_them(self):
        """Scalars that are text in the core schema and something else in YAML 1.1 are quoted: yes, 6.10, 010."""
        for name in ("catalogue", "gpus", "kernel-table", "signatures"):
            with self.subTest(name):
                compiled = (BUILD / f"daemon/{name}.inc").read_text().removeprefix('R"table(').removesuffix(')table"\n')
                self.assertEqual(json.loads(compiled), load(CONFIG / f"{name}.yaml"))

    def test_shipped_plans(self):
        for file in SHIPPED["plan"]:
            with self.subTest(file.name):
                self.assertEqual(self.explain(load(file)), 0)


if __name__ == "__main__":
    unittest.main()
