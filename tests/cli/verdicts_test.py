#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""doctor says of every machine record what its expected.json says: the outlook, the root cause, and, where it names GPUs to leave
out, what becomes of the rest under such a plan. P2PD_BUILD: the build directory. Prints the table."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import MACHINES  # noqa: E402

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
STATUS = {"ready": 0, "provable": 2, "fixable": 2, "person": 4, "impossible": 4, "limited": 5}
NOTHING_TO_DO = ("ready", "provable")


def doctor(record, *words):
    done = subprocess.run([P2PCTL, "doctor", *words, "--json", "--root", record], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def breaches(wanted, status, found):
    """What of doctor's answer is not as it is wanted; nothing of a right one."""
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


class Verdicts(unittest.TestCase):
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
