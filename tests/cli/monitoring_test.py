#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""packaging/monitoring: promtool's tests of the alerts, and that p2pctl prints each metric, label and word that a rule or a panel uses.

The machine that p2pctl reads has a proof, a note, a blocked step and PCI errors. P2PD_BUILD: the build directory.
"""
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import unittest

import yaml

from cli_case import Case, P2PCTL, plan_text
from tree import write

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "packaging/monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "p2pd.rules.yaml").read_text())["groups"] for rule in group["rules"]]
TESTS = yaml.safe_load((MONITORING / "p2pd.rules_test.yaml").read_text())["tests"]
RUNBOOKS = dict(re.findall(r"(?ms)^## (P2pd\w+)\n(.*?)(?=^## |\Z)", (MONITORING / "README.md").read_text()))
DASHBOARD = json.loads((MONITORING / "p2pd.dashboard.json").read_text())
OF_A_TARGET = {"instance", "job"}  # labels that Prometheus adds to all that it scrapes

SELECTOR = re.compile(r"\b(p2pd_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def samples(text):
    """Metric to the labels of its samples."""
    found = {}
    for name, labels in re.findall(r"(?m)^(\w+)(?:\{(.*)\})? \S+$", text):
        found.setdefault(name, []).append(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
    return found


def matches(labels, name, operator, value):
    if operator in ("=", "!="):
        return (labels.get(name, "") == value) == (operator == "=")
    return bool(re.fullmatch(value, labels.get(name, ""))) == (operator == "=~")


def breaches(expression, texts, printed):
    """Metrics, samples and labels that an expression and its texts use and p2pctl does not print."""
    found, known = [], set(OF_A_TARGET)
    for name, inner in SELECTOR.findall(expression):
        matchers = [m for m in MATCHER.findall(inner) if m[0] not in OF_A_TARGET]
        if name not in printed:
            found.append(f"no metric {name}")
        elif not any(all(label in s and matches(s, label, *m) for label, *m in matchers) for s in printed[name]):
            found.append(f"no sample {name}{{{inner}}}")
        known.update(*printed.get(name, []))
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
    used = {label.strip() for labels in grouped for label in labels.split(",")}
    used |= set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", " ".join(texts)))
    return found + [f"no label {label}" for label in sorted(used - known)]


class Monitoring(Case):
    def promtool(self, *words, **more):
        self.assertTrue(shutil.which("promtool"), "no promtool: packaging/deps install test")
        done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=120, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr


class Alerts(Monitoring):
    def test_promtool(self):
        self.assertIn(f"{len(RULES)} rules found", self.promtool("check", "rules", MONITORING / "p2pd.rules.yaml"))
        self.assertIn("SUCCESS", self.promtool("test", "rules", MONITORING / "p2pd.rules_test.yaml"))

    def test_each_alert_is_seen_firing_and_silent(self):
        seen = {(one["alertname"], bool(one.get("exp_alerts"))) for test in TESTS for one in test["alert_rule_test"]}
        self.assertEqual(seen, {(rule["alert"], fires) for rule in RULES for fires in (True, False)})

    def test_each_alert_names_commands_that_exist(self):
        for rule in RULES:
            with self.subTest(rule["alert"]):
                self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook"})
                for text in (rule["annotations"]["description"], RUNBOOKS[rule["alert"]]):
                    verbs = re.findall(r'["`](?:sudo )?p2pctl ([a-z-]+)', text)
                    self.assertTrue(verbs)
                    for verb in verbs:
                        self.assertEqual(subprocess.run([P2PCTL, verb, "--help"], capture_output=True, timeout=60).returncode, 0, verb)

    def test_each_alert_has_a_runbook_that_the_package_installs(self):
        self.assertEqual(list(RUNBOOKS), [rule["alert"] for rule in RULES])
        self.assertIn("install -D -m 644 packaging/monitoring/README.md packaging/monitoring/p2pd.* -t $(files)/usr/share/p2pd/monitoring\n",
                      (ROOT / "packaging/debian/rules").read_text())
        for rule in RULES:
            self.assertEqual(rule["annotations"]["runbook"], f"/usr/share/p2pd/monitoring/README.md, section {rule['alert']}")
            for part in ("Means:", "Then:", "Ends:"):
                self.assertIn(f"\n- {part} ", RUNBOOKS[rule["alert"]])

    def test_a_stale_file_is_the_one_that_the_service_writes(self):
        expr = next(rule["expr"] for rule in RULES if rule["alert"] == "P2pdMetricsStale")
        written = re.findall(r"--output (\S+)", (ROOT / "units/p2pd-metrics.service").read_text())
        pattern, = re.findall(r'file=~"([^"]*)"', expr)
        for file in written:
            self.assertRegex(file, rf"\A(?:{pattern})\Z")
        every, = re.findall(r"OnUnitActiveSec=(\d+)min", (ROOT / "units/p2pd-metrics.timer").read_text())
        self.assertGreater(int(re.search(r"> (\d+)", expr)[1]), 3 * 60 * int(every))


class Printed(Monitoring):
    """Output of p2pctl on a made machine."""

    def setUp(self):
        super().setUp()
        self.use("ubuntu24-6.14-rtx4090-x2")
        gpu = min((self.tree / "proc/driver/nvidia/gpus").iterdir()).name
        write(self.tree / "proc/stat", "btime 1795345100\n")
        write(self.tree / "run/p2pd/ready", "{}")
        for kind, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
            write(self.tree / f"sys/bus/pci/devices/{gpu}/aer_dev_{kind}", f"TOTAL_ERR_{total} 1\n")
        self.offer_driver("580.178.04")
        write(self.plan, plan_text("{gate: never, title: N, check: kernel-cmdline, with: {arguments: [nobody.gives=1]}}", self.shipped("driver-update")))
        self.json("apply", self.plan, code=4)
        self.prove()
        self.text = self.ctl("metrics").stdout
        self.printed = samples(self.text)

    def shipped(self, step):
        """A step of the shipped plan, as a plan of its own."""
        steps = yaml.safe_load((ROOT / "config/plans/geforce-p2p.yaml").read_text())["steps"]
        found = next(s for s in steps if step in s.values())
        return json.dumps({key: found[key] for key in found if key not in ("where", "after")})

    def offer_driver(self, version):
        """Sets the candidate version that apt gives for the installed packages of the driver."""
        status = (self.tree / "var/lib/dpkg/status").read_text()
        packages = sorted(re.findall(r"(?m)^Package: (\S+)\n(?:.+\n)*Version: 580\.95\.05-", status))
        policy = {"argv": ["apt-cache", "-oDir::Etc::PreferencesParts=/dev/null", "policy", *(f"{name}:amd64" for name in packages)],
                  "status": 0, "output": "".join(f"{name}:amd64:\n  Candidate: {version}-0ubuntu0.24.04.1\n" for name in packages), "errors": ""}
        write(self.tree / "commands/apt-cache.json", json.dumps(policy))

    def prove(self):
        """Writes the report of a proof into the journal, in the last run."""
        finding = {"verdict": "pass", "summary": "", "facts": json.loads((ROOT / "tests/sim/two-gpus.report.json").read_text())}
        with sqlite3.connect(self.state / "state.db") as journal:
            journal.execute("INSERT INTO steps SELECT run, 'p2p-proven', status, 0, 0, 0, 0, '', ? FROM steps LIMIT 1", [json.dumps(finding)])
        journal.close()

    def test_promtool_takes_it(self):
        self.assertEqual(self.promtool("check", "metrics", input=self.text), "")

    def test_rules(self):
        for rule in RULES:
            with self.subTest(rule["alert"]):
                self.assertEqual(breaches(rule["expr"], rule["annotations"].values(), self.printed), [])
                own = set().union(*(s for name, _ in SELECTOR.findall(rule["expr"]) for s in self.printed[name]))
                self.assertEqual(own & set(rule["labels"]), set(), "labels of the alert hide those of the metric")

    def test_dashboard(self):
        panels = DASHBOARD["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        for panel in panels:
            for target in panel["targets"]:
                with self.subTest(panel["title"], expr=target["expr"]):
                    self.assertRegex(target["expr"], SELECTOR)
                    self.assertEqual(breaches(target["expr"], [target["legendFormat"]], self.printed), [])
        for variable in DASHBOARD["templating"]["list"]:
            self.assertEqual(breaches(variable["query"], [], self.printed), [])

    def test_what_is_not_printed_is_found(self):
        for expression, text, breach in (("p2pd_nothing > 1", "", "no metric p2pd_nothing"),
                                         ('p2pd_note{step="nothing"}', "", 'no sample p2pd_note{step="nothing"}'),
                                         ('p2pd_drift{nothing!="x"}', "", 'no sample p2pd_drift{nothing!="x"}'),
                                         ("p2pd_ready unless ignoring (nothing) p2pd_drift", "", "no label nothing"),
                                         ("p2pd_ready", "{{ $labels.part }}", "no label part"),
                                         ("p2pd_ready", "{{part}}", "no label part")):
            with self.subTest(expression, text=text):
                self.assertEqual(breaches(expression, [text], self.printed), [breach])


if __name__ == "__main__":
    unittest.main()
