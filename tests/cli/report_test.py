#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl report as people and scripts use it: its file, its JSON against the schema, the data that it leaves out, and its page
for those who read it: headings, anchors, text alternatives; widths, colours and requests where chromium is installed."""
import contextlib
import json
import re
import sqlite3
import stat
import subprocess
import unittest

import jsonschema

from cli_case import Case, OPTIONS, P2PCTL, plan_text, STEP
from report_page import CHROMIUM, FAULTS_ON_SCREEN, Browser, Page, rendered
from tree import boot, MACHINES, TESTS, write

SCHEMA = json.loads((TESTS.parent / "config/schema/report.schema.json").read_text())
RECORDS = ("rtx4090-x2-am5", "rtx4090-x8-two-socket", "rtx4090-x4-one-lost", "rtx3090-x2-guest", "h100-x2-vm", "no-gpu")
MEDIA = [(width, scheme, "screen") for width in (400, 1000, 1600) for scheme in ("light", "dark")] + [(720, "light", "print")]


class Report(Case):
    def report(self, *words, code=0, **more):
        done = self.ctl("report", *words, cwd=self.scratch, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def page(self, *words):
        page = Page(rendered(self.report("-", *words).stdout))
        self.assertEqual(page.faults(), [])
        return page.text + page.json

    def proven(self, gpus, record):
        """A machine whose run measured that many GPUs, before and after, according to its state directory."""
        self.fresh()
        self.use(record)
        write(self.plan, plan_text(STEP, OPTIONS))
        while self.json("apply", self.plan)["state"] == "rebooting":
            boot(self.tree)
        bench = json.loads((TESTS / "sim/two-gpus.report.json").read_text())
        gpu, pair, path = bench["gpus"][0], bench["pairs"][0], {**bench["paths"][0][1], "kind": "pcie_switch", "payload_gb_s": 28.8}
        bench["gpus"] = [{**gpu, "index": i, "uuid": f"{gpu['uuid'][:-1]}{i}", "address": f"0000:{i + 1:02x}:00.0"} for i in range(gpus)]
        bench["pairs"] = [{**pair, "from": i, "to": k} for i in range(gpus) for k in range(gpus) if i != k]
        bench["paths"] = [[path] * gpus] * gpus
        bench["judgement"]["grades"] = [["warn" if k == 1 else "pass" for k in range(gpus)] for _ in range(gpus)]
        finding = {"verdict": "pass", "summary": bench["judgement"]["summary"], "facts": bench, "evidence": [], "next": ""}
        with contextlib.closing(sqlite3.connect(self.state / "state.db")) as journal, journal:
            self.assertEqual(journal.execute("UPDATE steps SET finding=? WHERE step='b'", [json.dumps(finding)]).rowcount, 1)
        left_out = dict.fromkeys(("copy_gb_s", "chase_ns", "copy_both_gb_s", "busy_gb_s", "store_gb_s", "load_gb_s"))
        write(self.state / "baseline.json", json.dumps({**bench, "pairs": [{**one, **left_out} for one in bench["pairs"]]}))

    def test_soak(self):
        """Rate and temperature over time, from a file of p2p-bench; another file is an error."""
        gpu = {"link_gt_s": 16, "link_width": 16, "temperature_c": 60, "replays": 0, "throttle": 0}
        samples = [{"seconds": 60 * i, "rounds": i, "checked_bytes": i << 40, "wrong": 0, "slowest_gb_s": 24 + i, "aer": {},
                    "gpus": [gpu, {**gpu, "temperature_c": None if i else 70}]} for i in range(3)]
        soak = self.scratch / "soak.json"
        soak.write_text(json.dumps({"soak": {"minutes": 2, "ended": "complete", "samples": samples}}))
        words = self.page("--soak", soak)
        self.assertIn("2.0 minutes, ended: complete; 2.00 TiB checked, 0 wrong", words)
        self.assertIn("Slowest copy: 24.0 to 26.0 GB/s", words)
        self.assertIn("Hottest GPU: 60.0 to 70.0 °C", words)
        for ended, sign in (("hung", "✗"), ("wrong", "✗"), ("interrupted", "✓")):
            soak.write_text(json.dumps({"soak": {"minutes": 2, "ended": ended, "samples": samples}}))
            self.assertIn(f"{sign} 2.0 minutes, ended: {ended}; 2.00 TiB checked, 0 wrong", self.page("--soak", soak))
        page = rendered(self.report("-", "--soak", soak).stdout)
        self.assertEqual(re.findall(r'<polyline class="(\w+)" points="([^"]*)"', page)[0], ("rate", "0.0,9.2 320.0,4.6 640.0,0.0"))
        for text in ("{}", "[", '{"soak": {"samples": []}}'):
            soak.write_text(text)
            self.assertRegex(self.report("-", "--soak", soak, code=1).stderr, "is no report of a soak\\n  next: ")
        soak.write_text(json.dumps({"soak": {"minutes": [], "samples": [7, {"gpus": 1}]}}))
        self.assertIn("0.0 minutes, ended: ; 0.00 TiB checked, 0 wrong", self.page("--soak", soak))
        self.report("-", "--soak", self.scratch / "none", code=1)

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

    def pages(self):
        """Name to file of pages of every kind."""
        for record in RECORDS:
            file = self.scratch / f"{record}.html"
            done = self.ctl("report", file, root=MACHINES / record)
            self.assertEqual(done.returncode, 0, done.stderr)
            yield record, file
        for gpus, record in ((2, "rtx4090-x2-am5"), (8, "rtx4090-x8-two-socket")):
            self.proven(gpus, record)
            file = self.scratch / f"proven-{gpus}.html"
            self.report(file)
            yield f"proven-{gpus}", file

    def test_a_page_that_all_can_read(self):
        for name, file in self.pages():
            with self.subTest(page=name):
                page = Page(rendered(file.read_text()))
                self.assertEqual(page.faults(), [])
                document = json.loads(page.json)
                jsonschema.validate(document, SCHEMA)
                self.assertTrue(document["machine"]["text"] in page.texts and document["verdict"]["headline"] in page.text)
                titles = [step["title"] for step in document["steps"]]
                self.assertTrue(all(titles))
                self.assertEqual([title for title in titles if page.texts[title] != 1], [], "each is there once")
                self.assertEqual("Copy, one way: before, through host memory" in page.texts, name == "proven-8", "maps, or a sentence for two")
                if name == "rtx3090-x2-guest":
                    self.assertIn("This is a virtual machine", page.text)

    def drawn(self, document):
        """Text of the page of that document, blanks as one."""
        page = Page(rendered(self.report("-").stdout, document))
        self.assertEqual(page.faults(), [])
        return re.sub(r"\s+", " ", page.text)

    def test_measurements(self):
        """Sentences for two GPUs, maps for more; grades, limits, bytes, and what changed."""
        self.proven(2, "rtx4090-x2-am5")
        document = self.json("report")
        text = self.drawn(document)
        for told in ("Copy, one way: 25.8 GB/s each way, 89 % of the 28.8 that the path leaves for data, ! GPU 0 to 1;", "before, through host memory.",
                     "Bytes both ways: right.", "computed for a ring"):
            self.assertIn(told, text)
        document["proof"]["bytes"][1][0] = "dropped"
        document["proof"]["again"] = {"time": "2026-11-22T11:08:00Z", "summary": "quick"}
        document["before"] = {"measured": False, "why": "no CUDA driver"}
        text = self.drawn(document)
        for told in ("Bytes from GPU 0 to GPU 1: right; back: dropped.", "Measured again 2026-11-22 11:08:00 UTC: quick", "Before: no CUDA driver"):
            self.assertIn(told, text)
        self.proven(8, "rtx4090-x8-two-socket")
        document = self.json("report")
        document["proof"]["bytes"][0][7] = "not expected"
        document["topology"][1]["link"] = {"generation": 1, "width": 8, "generation_most": 4, "width_most": 16}
        text = self.drawn(document)
        for told in ("Copy, one way: before, through host memory GB/s", "Copy, one way: after GB/s", "slow fast: 0 to 100 %", "of 28.8", "Bytes that arrived", "GPU 7",
                     "Gen4 x8 of x16", "Paths and their limits GB/s one way", "0‑1, 0‑2"):
            self.assertIn(told, text)

    def test_times(self):
        document = self.json("report")
        event = {"run": 1, "boot": 1, "type": "fixed", "what": "fix applied", "step": "acs", "title": "", "text": ""}
        times = [("11:00:00", 1), ("11:01:05", 1), ("11:06:00", 2), ("13:09:00", 2)]
        document.update(ran=True, looks=3, events=[{**event, "time": f"2026-11-22T{time}Z", "boot": boot} for time, boot in times])
        document["runs"] = [{"id": 40 - i, "plan": "p", "state": "idle", "result": "done", "reason": "", "reboots": 0, "started": "2026-11-22T11:00:00Z",
                             "ended": "2026-11-25T11:00:00Z"} for i in range(25)]
        text = self.drawn(document)
        for told in ("Boot 1, run 1: 1 min 5 s, from 2026-11-22 11:00:00 UTC", "+1 min 5 s", "Boot 2, run 1: 2 h 3 min", "4 min 55 s after the last event of boot 1",
                     "Runs that changed nothing, as at every boot: 3.", "3 days", "5 earlier runs are left out."):
            self.assertIn(told, text)

    def test_nothing_becomes_markup(self):
        evil = "<script>alert(1)</script><img/src=x onerror=alert(1)>\"'>\u202e"

        def spoilt(value):
            if isinstance(value, dict):
                return {key: one if key in ("schema", "verdict", "kind") else spoilt(one) for key, one in value.items()}
            return [spoilt(one) for one in value] if isinstance(value, list) else value + evil if isinstance(value, str) else value
        self.proven(8, "rtx4090-x8-two-socket")
        page = rendered(self.report("-").stdout, spoilt(self.json("report")))
        self.assertEqual((page.count("<script"), page.count("<img")), (2, 0))
        self.assertNotIn("\u202e", page.split("<main>")[1])
        self.assertIn("&lt;script&gt;alert(1)", page)

    def test_without_its_script(self):
        """The verdict and the tables are there."""
        self.proven(2, "rtx4090-x2-am5")
        document, page = self.json("report"), Page(self.report("-").stdout)
        told = re.sub(r"\s+", " ", page.text)
        for text in (document["verdict"]["headline"], document["machine"]["text"], "Copy, one wayGPU 0 to 1", *(step["id"] for step in document["steps"])):
            self.assertIn(text, told)

    def test_an_emulated_machine_says_so_first(self):
        self.assertEqual(self.json("report")["machine"]["emulated"], "")
        write(self.tree / "sys/class/dmi/id/sys_vendor", "p2pd\n")
        text = self.page()
        self.assertLess(text.index("This machine is emulated"), text.index("Checks"))

    @unittest.skipUnless(CHROMIUM, "SKIP: needs chromium")
    def test_in_a_browser(self):
        pages = dict(self.pages())
        with Browser() as browser:
            for name, file in pages.items():
                for width, scheme, media in MEDIA:
                    with self.subTest(page=name, width=width, scheme=scheme, media=media):
                        browser.look(file, width, scheme, media)
                        numbers = browser.value("document.querySelector('.numbers')?.getBoundingClientRect().bottom ?? 0")
                        self.assertLess(numbers, 800, "the first figures are on the first screen")
                        self.assertEqual(name.startswith("proven"), numbers > 0)
                        wide = browser.value("Math.max(...[...document.querySelectorAll('section')].map(s => s.getBoundingClientRect().right))")
                        self.assertGreater(wide, width * 0.9, "the width is used")
                        self.assertEqual(browser.value(FAULTS_ON_SCREEN), [])
                        self.assertEqual(browser.requests(), [file.as_uri()])

    def test_a_run_and_its_way_back(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        validator = jsonschema.Draft202012Validator(SCHEMA)
        self.apply_to_end()
        document = self.json("report")
        validator.validate(document)
        self.assertEqual([c["step"] for c in document["changes"]], ["a", "b"])
        self.assertEqual({e["boot"] for e in document["events"]}, {1, 2})
        first = document["changes"][0]
        self.assertIn("/etc/default/grub.d/zz-p2pd.cfg", first["files"])
        self.assertRegex(first["cost"], "iommu=pt: every device")
        self.assertTrue(first["reboot"])
        self.assertRegex(self.page(), r"(?s)Boot 1, run 1: \d.*Boot 2, run 1: \d.*after the last event of boot 1")
        self.assertRegex(self.page(), "Every step of the plan holds")
        self.revert_to_end()
        self.assertRegex(self.page(), "as it was found")
        document = self.json("report")
        validator.validate(document)
        self.assertEqual({(c["status"], *c["files"]) for c in document["changes"]}, {("reverted",)})

    def test_what_it_does_not_tell(self):
        uuid = "5b694366-fbc1-9c4e-3eaf-2f5dc4468404"
        write(self.tree / "etc/hostname", "box7\n")
        write(self.tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        write(self.tree / "proc/cmdline", f"root=UUID={uuid} hostname=box7 <script>alert(1)</script>\n")
        told = self.page()
        for secret in (uuid, "box7", "0123456789abcdef"):
            self.assertNotIn(secret, told)
        whole = self.page("--no-redact")
        for known in (uuid, "box7", "0123456789abcdef", "<script>alert(1)</script>"):  # the last is shown as text
            self.assertIn(known, whole)


if __name__ == "__main__":
    unittest.main()
