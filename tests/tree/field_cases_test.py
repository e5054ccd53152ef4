#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every case of the field has a row in tests/field_cases.yaml, and the test that a row names has that case. Prints the
table. P2PD_CORPUS: a directory whose cases.md lists the cases; without it the rows are checked alone."""
import os
import pathlib
import re
import unittest

import yaml

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROWS = TESTS / "field_cases.yaml"
CORPUS = os.environ.get("P2PD_CORPUS")


def rows():
    """{section: {case: row}}; a case that occurs twice is an error, of which yaml would take the last."""
    names = re.findall(r'^  "([^"]+)":', ROWS.read_text(), re.M)
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    return yaml.safe_load(ROWS.read_text())


def listed(text):
    """{section: [case]} of the tables of a cases.md."""
    sections, section = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        found = re.match(r"\| ([^ |]+) \|", line)
        if section and found and found[1] not in ("case", "---"):
            sections.setdefault(section, []).append(found[1])
    return sections


def breaches(table, wanted, sources):
    """Faults of the table: cases without a row, rows without a case, and tests that do not name their case. `wanted`: see listed(), None if
    it is not known; `sources`: text of each test by name."""
    found = []
    for section, cases in table.items():
        for case, row in cases.items():
            if set(row) == {"not_read"} and row["not_read"]:
                continue
            if set(row) != {"test", "outcome"} or not row["outcome"]:
                found.append(f"{case}: neither test and outcome nor not_read")
            elif not re.search(rf'["\s]{re.escape(case)}["\s,;:(]', sources.get(row["test"], "")):
                found.append(f"{case}: {row['test']} does not give it")
    if wanted is not None:
        have = {(s, c) for s, cases in table.items() for c in cases}
        want = {(s, c) for s, cases in wanted.items() for c in cases}
        found += [f"{c}: no row in {s}" for s, c in want - have] + [f"{c}: a row in {s}, and no such case" for s, c in have - want]
    return found


def source(path):
    """Text of a test with the headers of its folder that it includes."""
    text = path.read_text()
    headers = [path.parent / name for name in re.findall(r'^#include "([^"/]+)"', text, re.M)]
    return text + "".join(header.read_text() for header in headers)


class FieldCases(unittest.TestCase):
    def setUp(self):
        self.table = rows()
        self.sources = {f"{p.parent.name}/{p.name}": source(p) for p in [*TESTS.glob("unit/*.cpp"), *TESTS.glob("*/*_test.py")]}

    def test_every_row_has_its_test(self):
        for section, cases in self.table.items():
            print(f"\n{section}: {len(cases)} cases")
            for case, row in cases.items():
                print(f"  {case:<46} {row.get('outcome') or 'not read by p2pd: ' + row['not_read']} [{row.get('test', '-')}]")
        self.assertEqual(breaches(self.table, None, self.sources), [])
        self.assertGreater(sum(map(len, self.table.values())), 100)

    @unittest.skipUnless(CORPUS, "SKIP: P2PD_CORPUS is not set")
    def test_every_case_has_a_row(self):
        wanted = listed(pathlib.Path(CORPUS, "cases.md").read_text())
        self.assertGreater(sum(map(len, wanted.values())), 100)
        self.assertEqual(breaches(self.table, wanted, self.sources), [])

    def test_breaches_are_found(self):
        sources = {"a_test.cpp": '{"one", 1}, // case two: x'}
        wanted = listed("## S\n| case | meaning |\n| --- | --- |\n| one | x |\n| two | y |\n")
        good = {"S": {"one": {"test": "a_test.cpp", "outcome": "x"}, "two": {"not_read": "why"}}}
        self.assertEqual(breaches(good, wanted, sources), [])
        for bad in ({"S": {"one": good["S"]["one"]}},
                    {"T": good["S"]},
                    {"S": good["S"] | {"three": {"not_read": "why"}}},
                    {"S": good["S"] | {"two": {"not_read": ""}}},
                    {"S": good["S"] | {"two": {"test": "b_test.cpp", "outcome": "x"}}},
                    {"S": good["S"] | {"one": {"test": "a_test.cpp", "outcome": ""}}}):
            with self.subTest(bad):
                self.assertNotEqual(breaches(bad, wanted, sources), [])


if __name__ == "__main__":
    unittest.main()
