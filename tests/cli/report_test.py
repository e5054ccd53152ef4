#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl report as people and scripts meet it: its file, its JSON against the schema, and what it does not tell."""
import html.parser
import json
import os
import pathlib
import stat
import subprocess
import unittest

import jsonschema

from cli_case import Case, OPTIONS, P2PCTL, plan_text, STEP
from tree import MACHINES, write

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "config/schema/report.schema.json").read_text())
VOID = {"meta", "br", "rect", "path"}


class Page(html.parser.HTMLParser):
    """Elements that are opened and closed in order; what is loaded; the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.text, self.wrong = [], [], "", []
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        self.loads += [(tag, name) for name, _ in attrs if name in ("src", "href", "srcset", "action", "style") or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.loads += [(tag, name) for name, _ in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += "" if self.open and self.open[-1] == "style" else data


class Report(Case):
    def report(self, *words, code=0, **more):
        done = self.ctl("report", *words, cwd=self.scratch, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def page(self, *words):
        page = Page(self.report("-", *words).stdout)
        self.assertEqual((page.wrong, page.loads), ([], []))
        return page.text

    def test_file(self):
        done = self.report()
        self.assertRegex(done.stderr, "nothing has run on this machine yet")
        self.assertRegex(done.stdout, r"^p2pd-report\.html: \d+ KiB, ")
        file = self.scratch / "p2pd-report.html"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)
        self.assertTrue(file.read_text().startswith("<!doctype html>"))
        self.report("other.html", "--no-redact")
        self.assertEqual(stat.S_IMODE((self.scratch / "other.html").stat().st_mode), 0o600)
        self.assertEqual(sorted(p.name for p in self.scratch.glob("*html*")), ["other.html", "p2pd-report.html"])
        self.assertFalse(self.state.exists())
        self.assert_unchanged()

    def test_a_file_that_cannot_be(self):
        (self.scratch / "directory").mkdir()
        for words in (["nowhere/x.html"], ["directory"], ["x.html", "--json"]):
            with self.subTest(words=words):
                self.report(*words, code=1)
                self.assertFalse((self.scratch / "nowhere").exists())

    def test_a_link_is_replaced_not_followed(self):
        target = self.scratch / "target"
        target.write_text("mine")
        (self.scratch / "p2pd-report.html").symlink_to(target)
        self.report()
        self.assertEqual(target.read_text(), "mine")

    def test_every_record(self):
        validator = jsonschema.Draft202012Validator(SCHEMA)
        for machine in sorted(MACHINES.glob("*/machine.json")):
            with self.subTest(record=machine.parent.name):
                done = subprocess.run([P2PCTL, "report", "--json", "--root", machine.parent], capture_output=True, text=True, timeout=60)
                document = json.loads(done.stdout)
                validator.validate(document)
                doctor = json.loads(self.ctl("doctor", "--json", root=machine.parent).stdout)
                cause = document["causes"][0]["step"] if document["causes"] else None
                self.assertEqual(cause, doctor["conclusion"] and doctor["conclusion"]["step"])
                self.assertEqual(len(document["gpus"]), len([n for n in document["topology"] if n["kind"] == "gpu"]))

    def test_a_run_and_its_way_back(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        validator = jsonschema.Draft202012Validator(SCHEMA)
        self.apply_to_end()
        document = self.json("report")
        validator.validate(document)
        self.assertEqual([c["step"] for c in document["changes"]], ["a", "b"])
        self.assertEqual({e["boot"] for e in document["events"]}, {1, 2})
        self.assertRegex(self.page(), "Every step of the plan holds")
        self.revert_to_end()
        self.assertRegex(self.page(), "as it was found")
        validator.validate(self.json("report"))

    def test_what_it_does_not_tell(self):
        uuid = "5b694366-fbc1-9c4e-3eaf-2f5dc4468404"
        write(self.tree / "etc/hostname", "box7\n")
        write(self.tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        write(self.tree / "proc/cmdline", f"root=UUID={uuid} hostname=box7 <script>alert(1)</script>\n")
        told = self.page()
        for secret in (uuid, "box7", "0123456789abcdef"):
            self.assertNotIn(secret, told)
        self.assertIn("<script>alert(1)</script>", told)  # as text
        for secret in (uuid, "box7", "0123456789abcdef"):
            self.assertIn(secret, self.page("--no-redact"))


if __name__ == "__main__":
    unittest.main()
