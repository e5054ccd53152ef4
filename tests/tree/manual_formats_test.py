#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages describe the formats of files and the interface on the bus, completely and no more."""
import json
import re
import shlex
import unittest
import xml.etree.ElementTree

from manual import Case, items, keys, page, part, ROOT, UNITS

SCHEMA = ROOT / "config/schema"


def schema(name):
    return json.loads((SCHEMA / f"{name}.schema.json").read_text())


def declared_parameters(folder):
    """Id of each probe or action to the names of its parameters."""
    shared = {}
    for header in sorted((ROOT / "daemon").rglob("*.hpp")):
        for name, value in re.findall(r"constexpr Parameter (k\w+)(?:\[\])? = (.*?);\n", header.read_text(), re.S):
            shared[name] = set(re.findall(r'"(\w+)",\s*Parameter::Type', value))
    table = {}
    for path in sorted((ROOT / folder).glob("*.cpp")):
        text = path.read_text()
        own = set(re.findall(r'\{"(\w+)",\s*Parameter::Type', text))
        table[path.stem.replace("_", "-")] = own.union(*(shared[n] for n in shared if re.search(rf"\b{n}\b", text)))
    return table


class Formats(Case):
    """p2pd.plan.5, the schemas, and the tables of checks and fixes."""

    def assert_keys(self, lines, properties, required):
        documented = keys(lines)
        self.assertEqual(set(documented), set(properties))
        for key, rule in properties.items():
            with self.subTest(key):
                text = documented[key]
                if required is not None:
                    self.assertEqual(bool(re.search(r"^Required[.:]", text, re.M)), key in required)
                for value in rule.get("enum", []):
                    self.assertRegex(text, rf"\b{value}\b")
                for bound in [rule[b] for b in ("minimum", "maximum") if b in rule]:
                    self.assertRegex(text, rf"\b{bound}\b")
                if told := re.search(r"(\S+) unless told", rule.get("description", "")):
                    self.assertIn(f"Default: {told[1]}.", text)
                for inner in rule.get("properties", {}):
                    if key != "policy":  # described in a part of its own
                        self.assertRegex(text, rf"\.Cm {inner}\b")

    def test_plan(self):
        plan = schema("plan")
        self.assert_keys(part("p2pd.plan.5", "PLAN"), plan["properties"], plan["required"])
        self.assert_keys(part("p2pd.plan.5", "PLAN", "Policy"), plan["properties"]["policy"]["properties"], [])
        step = plan["$defs"]["step"]
        self.assert_keys(part("p2pd.plan.5", "PLAN", "Steps"), step["properties"], step["required"])

    def test_configuration(self):
        self.assert_keys(part("p2pd.plan.5", "CONFIGURATION"), schema("config")["properties"], [])

    def test_catalogue(self):
        catalogue = schema("catalogue")
        tables = part("p2pd.plan.5", "CATALOGUE")
        self.assert_keys(tables, catalogue["properties"], None)
        for table, row in (("compat_rules", "rule"), ("defects", "defect"), ("branches", "branch"), ("allowed", "allowance")):
            for key in catalogue["$defs"][row]["properties"]:
                self.assertRegex(keys(tables)[table], rf"\.Cm {key}\b")
        for part_of_it, row in (("Releases", "release"), ("Patches", "patch")):
            self.assert_keys(part("p2pd.plan.5", "CATALOGUE", part_of_it), catalogue["$defs"][row]["properties"], catalogue["$defs"][row].get("required", []))
        known = keys(part("p2pd.plan.5", "CATALOGUE", "Releases"))["known"]
        for word in catalogue["$defs"]["known"]["enum"]:
            self.assertRegex(known, rf"\.Ql {word}\b")
            self.assertIn(f".It Sy {word.replace('-', ' ')}", page("p2pctl.1"))

    def test_shipped_plans(self):
        named = keys(part("p2pd.plan.5", "DESCRIPTION"), "Sy")
        self.assertEqual(set(named), {p.stem for p in (ROOT / "config/plans").glob("*.yaml")})

    def test_checks_and_fixes(self):
        checks, fixes = keys(part("p2pd.plan.5", "PLAN", "Checks"), "Sy"), keys(part("p2pd.plan.5", "PLAN", "Fixes"), "Sy")
        probes, actions = declared_parameters("probes"), declared_parameters("actions")
        self.assertEqual(set(checks), set(probes))
        self.assertEqual(set(fixes), set(actions))
        for id_, names in probes.items():
            with self.subTest(check=id_):
                self.assertEqual({n for n in names if not re.search(rf"\b{n}\b", checks[id_])}, set())
        for id_, names in actions.items():
            with self.subTest(fix=id_):
                text = fixes[id_] + checks.get(id_, "")
                self.assertEqual({n for n in names if not re.search(rf"\b{n}\b", text)}, set())


class Bus(Case):
    """org.p2pd1.5 and units/org.p2pd1.xml."""

    @classmethod
    def setUpClass(cls):
        cls.interface = xml.etree.ElementTree.parse(UNITS / "org.p2pd1.xml").find("interface")
        cls.name = "org.p2pd1.5"

    def test_interface(self):
        self.assertIn(f".Sy {self.interface.get('name')}", page(self.name))

    def test_properties(self):
        shown = dict(re.fullmatch(r"Va (\w+) Pq Li (\S+)", head).groups()
                     for head, _ in items(part(self.name, "PROPERTIES")))
        self.assertEqual(shown, {p.get("name"): p.get("type") for p in self.interface.findall("property")})

    def test_announced(self):
        told = {p.get("name"): p.find("annotation").get("value") for p in self.interface.findall("property")
                if p.find("annotation") is not None}
        self.assertEqual(told, {"Version": "const", "Gpus": "false"}, "the page says so")

    def members(self, kind):
        table = {}
        for member in self.interface.findall(kind):
            table[member.get("name")] = [("out " if a.get("direction") == "out" else "") + f"{a.get('type')} {a.get('name')}"
                                         for a in member.findall("arg")]
        return table

    def shown(self, section):
        words = [shlex.split(head) for head, _ in items(part(self.name, section))]
        return {w[1]: w[2:] for w in words if w[0] == "Fn"}

    def test_methods_and_signals(self):
        self.assertEqual(self.shown("METHODS"), self.members("method"))
        self.assertEqual(self.shown("SIGNALS"), self.members("signal"))

    def test_errors(self):
        documented = set(keys(part(self.name, "ERROR NAMES"), "Sy"))
        named = set(re.findall(r'"(org\.p2pd1\.Error\.\w+)"', (ROOT / "daemon/bus/requests.cpp").read_text()))
        self.assertEqual({n for n in documented if n.startswith("org.p2pd1.")}, named)

    def test_status_document(self):
        source = "".join((ROOT / "daemon" / name).read_text() for name in ("engine/status.cpp", "worker/publisher.cpp"))
        documented = set(re.findall(r"\.(?:It )?Cm (\w+)", "\n".join(part(self.name, "STATUS DOCUMENT"))))
        documented |= {n for head, _ in items(part(self.name, "STATUS DOCUMENT")) for n in re.findall(r"\w+", head)[1:]}
        self.assert_within([n for n in documented if f'"{n}"' not in source], [])
        made = re.search(r"^json status_of\(.*?^}", source, re.M | re.S)[0]
        self.assert_within(re.findall(r'\{"(\w+)", ', made), documented, "not in the page")

    def test_actions(self):
        policy = xml.etree.ElementTree.parse(UNITS / "org.p2pd1.policy")
        self.assertEqual(set(keys(part(self.name, "AUTHORIZATION"), "Sy")), {a.get("id") for a in policy.iter("action")})

    def test_words(self):
        def words(file, name):
            table = re.search(rf"{name}\[\] = \{{(.*?)\}}", (ROOT / file).read_text(), re.S)[1]
            return set(re.findall(r'"([\w-]+)"', table))

        states = words("daemon/engine/transitions.cpp", "kStateNames")
        self.assertEqual(set(re.findall(r"^\.Ql (\S+)", keys(part(self.name, "PROPERTIES"), "Va")["State"], re.M)), states)
        self.assertEqual(set(keys(part("p2pd.8", "RUN STATES"), "Sy")), states)
        signals = "\n".join(part(self.name, "SIGNALS"))
        for status in words("daemon/engine/journal.cpp", "kStatus"):
            self.assertRegex(signals, rf"\.Ql {status}\b")


if __name__ == "__main__":
    unittest.main()
