#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every machine record is complete, as tests/machines/README.md describes, has its expected conclusion beside it, and doctor comes
to it: the outlook, the root cause, and, if it names GPUs to leave out, the outlook of the rest under such a plan.

P2PD_BUILD names the build directory whose records and bin/p2pctl are used; default: build/dev.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import MACHINES  # noqa: E402

P2PCTL = MACHINES.parent / "bin/p2pctl"
AT_LEAST = 20
KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
OUTLOOKS = {"ready", "limited", "provable", "fixable", "person", "impossible"}
CONCLUSION, EXCLUDING = ["outlook", "root_cause", "why", "source"], ["gpus", "outlook", "root_cause", "why"]
NEEDED = ["machine.json", "expected.json", "etc/os-release", "proc/cmdline", "proc/sys/kernel/osrelease"]
DESCRIPTION = {"schema", "name", "title", "source", "captured", "notes"}
ROOM = {"/boot", "/usr", "/var"}
ADDRESS = re.compile(r"^([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", re.MULTILINE)
STATUS = {"ready": 0, "provable": 2, "fixable": 2, "person": 4, "impossible": 4, "limited": 5}
NOTHING_TO_DO = ("ready", "provable")


def records():
    return sorted(file.parent for file in MACHINES.glob("*/machine.json"))


def load(path):
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def text(value):
    return isinstance(value, str) and value.strip() == value and value != ""


def conclusion_faults(expected):
    """Faults of the expectation for one plan."""
    cause = expected["root_cause"]
    if expected["outlook"] not in OUTLOOKS:
        yield f"expected.json: {expected['outlook']!r} is no outlook"
    elif (cause is None) != (expected["outlook"] in ("ready", "provable")):
        yield f"expected.json: {expected['outlook']} and a root_cause of {cause!r}"
    elif cause is not None and not (text(cause) and KEBAB.fullmatch(cause)):
        yield f"expected.json: root_cause {cause!r} is neither an id nor null"
    if not text(expected["why"]) or "\n" in expected["why"]:
        yield "expected.json: no reason of one line"


def expectation_faults(record):
    expected = load(record / "expected.json")
    if [key for key in expected if key not in ("blocked_by", "excluding")] != CONCLUSION:
        yield "expected.json: wants " + ", ".join(CONCLUSION)
        return
    yield from conclusion_faults(expected)
    if not text(expected["source"]):
        yield "expected.json: no source"
    if not (text(expected.get("blocked_by", "a")) and KEBAB.fullmatch(expected.get("blocked_by", "a"))):
        yield "expected.json: blocked_by is no step"
    excluding = expected.get("excluding")
    if excluding is not None and (not isinstance(excluding, dict) or list(excluding) != EXCLUDING or not excluding["gpus"]):
        yield "expected.json: excluding wants " + ", ".join(EXCLUDING)
    elif excluding is not None:
        yield from conclusion_faults(excluding)


def faults(record):
    yield from (f"{name}: missing" for name in NEEDED if not (record / name).is_file())
    yield from expectation_faults(record)
    machine = load(record / "machine.json")
    if not DESCRIPTION <= machine.keys() or machine["name"] != record.name or machine["schema"] != "p2pd.machine/1":
        yield "machine.json: keys, name or schema"
    room = machine.get("free_bytes", {})
    if machine.get("captured") is None and not (set(room) == ROOM and all(isinstance(n, int) and n > 0 for n in room.values())):
        yield "machine.json: wants the free bytes of " + ", ".join(sorted(ROOM))
    dump = record / "lspci-xxxx.txt"
    addresses = ADDRESS.findall(dump.read_text()) if dump.is_file() else []
    if not addresses:
        yield "lspci-xxxx.txt: lists no function"
    for address in addresses:
        for name in ("class", "resource"):
            if not (record / "sys/bus/pci/devices" / address / name).is_file():
                yield f"{address}: no {name} in sysfs"
    for command in record.glob("commands/*"):
        if load(command).keys() != {"argv", "status", "output", "errors"}:
            yield f"{command.name}: not a recorded command"


def doctor(record, *words):
    done = subprocess.run([P2PCTL, "doctor", *words, "--json", "--root", record], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def breaches(wanted, status, found):
    """Differences of doctor's answer from the expected one; none if it is right."""
    outlook, conclusion = found["outlook"], found["conclusion"] or {}
    told = ": ".join(filter(None, (conclusion.get("step"), conclusion.get("summary"), conclusion.get("obstacle"))))
    if outlook != wanted["outlook"]:
        yield f"outlook {outlook} ({told}), not {wanted['outlook']}"
    if conclusion.get("check") != wanted["root_cause"]:
        yield f"root cause {conclusion.get('check')} ({told}), not {wanted['root_cause']}"
    if "blocked_by" in wanted and conclusion.get("obstacle", "").split(":")[0] != wanted["blocked_by"]:
        yield f"blocked by {conclusion.get('obstacle')!r}, not by {wanted['blocked_by']}"
    if status != STATUS[outlook] or found["holds"] != (outlook == "ready"):
        yield f"exit status {status}, holds {found['holds']} of {outlook}"
    if outlook in NOTHING_TO_DO and (found["person"] or found["reboots"]):
        yield f"asks for {found['reboots']} reboots and for {[one['step'] for one in found['person']]}, though there is nothing to fix"
    if outlook not in NOTHING_TO_DO and not (conclusion and conclusion.get("next") and conclusion.get("by") in ("p2pd", "operator")):
        yield "no next step"


class Machines(unittest.TestCase):
    def test_there_are_enough(self):
        self.assertGreaterEqual(len(records()), AT_LEAST)

    def test_every_record_is_whole(self):
        for record in records():
            with self.subTest(record.name):
                self.assertEqual(list(faults(record)), [])

    def test_both_conclusions_are_there(self):
        causes = [load(record / "expected.json").get("root_cause") for record in records()]
        self.assertIn(None, causes)
        self.assertGreaterEqual(len(set(causes)), 15)

    def test_seeded_faults_are_found(self):
        whole = {"outlook": "person", "root_cause": "iommu", "blocked_by": "boot-loader", "why": "It translates.",
                 "source": "field-notes.md section 2",
                 "excluding": {"gpus": ["10de:1d01"], "outlook": "provable", "root_cause": None, "why": "The rest works."}}
        mistakes = [{**whole, "root_cause": "IOMMU on"}, {**whole, "root_cause": ""}, {**whole, "source": " "},
                    {**whole, "why": "one\ntwo"}, {**whole, "more": 1}, {"root_cause": None}, [], {**whole, "outlook": "broken"},
                    {**whole, "outlook": "provable"}, {**whole, "root_cause": None}, {**whole, "blocked_by": "No GRUB"},
                    {**whole, "excluding": {}}, {**whole, "excluding": {**whole["excluding"], "gpus": []}},
                    {**whole, "excluding": {**whole["excluding"], "outlook": "person"}}]
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory) / "no-gpu"
            shutil.copytree(MACHINES / "no-gpu", copy, symlinks=True)
            self.assertEqual(list(faults(copy)), [])
            for mistake in mistakes:
                (copy / "expected.json").write_text(json.dumps(mistake))
                with self.subTest(mistake):
                    self.assertEqual(len(list(faults(copy))), 1)
            (copy / "expected.json").write_text(json.dumps(whole))
            for name in ("proc/cmdline", "sys/bus/pci/devices/0000:00:00.0/resource", "lspci-xxxx.txt"):
                kept = (copy / name).read_bytes()
                (copy / name).unlink()
                with self.subTest(name):
                    self.assertEqual(len(list(faults(copy))), 1)
                (copy / name).write_bytes(kept)


class Verdicts(unittest.TestCase):
    """Prints the table."""

    def look(self, record, wanted, *words):
        status, found = doctor(record, *words)
        conclusion = found["conclusion"] or {}
        print(f"{record.name + (' without ' + ', '.join(wanted['gpus']) if 'gpus' in wanted else ''):<52} {found['outlook']:<10} "
              f"{conclusion.get('check', '-'):<20} {conclusion.get('summary', '')}")
        self.assertEqual(list(breaches(wanted, status, found)), [])

    def test_every_record(self):
        for expected in sorted(MACHINES.glob("*/expected.json")):
            with self.subTest(expected.parent.name):
                self.look(expected.parent, json.loads(expected.read_text()))

    def test_without_a_card(self):
        found = [(file.parent, wanted["excluding"]) for file in sorted(MACHINES.glob("*/expected.json"))
                 if "excluding" in (wanted := json.loads(file.read_text()))]
        self.assertGreaterEqual(len(found), 4)
        with tempfile.TemporaryDirectory() as directory:
            plan = pathlib.Path(directory) / "rest.yaml"
            for record, wanted in found:
                plan.write_text(f"name: rest\ntitle: The rest\nbased_on: geforce-p2p\ngpus: {{exclude: {json.dumps(wanted['gpus'])}}}\n")
                with self.subTest(record.name):
                    self.look(record, wanted, plan)

    def test_breaches_are_found(self):
        wanted = {"outlook": "person", "root_cause": "iommu", "blocked_by": "boot-loader"}
        conclusion = {"step": "iommu", "check": "iommu", "summary": "it translates", "obstacle": "boot-loader: none", "by": "operator", "next": "x"}
        found = {"outlook": "person", "holds": False, "reboots": 0, "person": [{"step": "iommu"}], "conclusion": conclusion}
        self.assertEqual(list(breaches(wanted, 4, found)), [])
        for status, bad in ((3, {}), (4, {"holds": True}), (4, {"conclusion": None}), (4, {"conclusion": conclusion | {"check": "acs"}}),
                            (4, {"conclusion": conclusion | {"next": ""}}), (4, {"conclusion": conclusion | {"obstacle": "room: full"}}),
                            (2, {"outlook": "fixable"}), (2, {"outlook": "provable"})):
            with self.subTest(status=status, bad=bad):
                self.assertNotEqual(list(breaches(wanted, status, found | bad)), [])
        provable = {"outlook": "provable", "root_cause": None}
        right = {"outlook": "provable", "holds": False, "reboots": 0, "person": [], "conclusion": None}
        self.assertEqual(list(breaches(provable, 2, right)), [])
        for bad in ({"reboots": 1}, {"person": [{"step": "boot"}]}):
            self.assertNotEqual(list(breaches(provable, 2, right | bad)), [])


if __name__ == "__main__":
    unittest.main()
