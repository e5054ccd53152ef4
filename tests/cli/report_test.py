#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl report as people and scripts meet it: its file, its JSON against the schema, what it does not tell, and its page
for those who read it: headings, anchors, text alternatives; widths, colours and requests where chromium is installed."""
import collections
import contextlib
import html.parser
import json
import os
import pathlib
import re
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time
import unittest

import jsonschema

from cli_case import Case, OPTIONS, P2PCTL, plan_text, STEP
from tree import boot, MACHINES, TESTS, write

SCHEMA = json.loads((TESTS.parent / "config/schema/report.schema.json").read_text())
VOID = {"meta", "br", "rect", "path"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RECORDS = ("rtx4090-x2-am5", "rtx4090-x8-two-socket", "rtx4090-x4-one-lost", "rtx3090-x2-guest", "h100-x2-vm", "no-gpu")
MEDIA = [(width, scheme, "screen") for width in (400, 1000, 1600) for scheme in ("light", "dark")] + [(720, "light", "print")]


class Page(html.parser.HTMLParser):
    """Elements that are opened and closed in order; what is loaded; the text; what readers without eyes or a mouse need."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.text, self.wrong, self.json, self.last = [], [], "", [], "", ""
        self.headings, self.ids, self.anchors, self.unnamed, self.texts = [], [], [], [], collections.Counter()
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.loads += [(tag, name) for name, value in attrs if name in ("src", "srcset", "action", "style") or name.startswith("on")
                       or (name == "href" and not value.startswith("#"))]
        self.anchors += [told["href"][1:]] if "href" in told else []
        self.ids += [told["id"]] if "id" in told else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        if (told.get("role") == "img" or tag in ("svg", "img", "nav")) and not told.get("aria-label"):
            self.unnamed.append((tag, told))
        if self.last == "figure" and tag != "figcaption":
            self.unnamed.append((self.last, told))
        self.last = tag
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
        where = self.open[-1] if self.open else ""
        if where == "pre" and "json" in self.ids:
            self.json += data
        elif where != "style":
            self.text += data
            self.texts[data.strip()] += 1

    def faults(self):
        """What a reader would stumble over, in words."""
        steps = list(zip(self.headings, self.headings[1:]))
        return [*(f"{tag} is not closed in order" for tag in self.wrong), *(f"loads by {one}" for one in self.loads),
                *(["no single h1 at the top"] if self.headings[:1] != [1] or self.headings.count(1) != 1 else []),
                *(f"heading {a} is followed by {b}" for a, b in steps if b > a + 1),
                *(f"id {one} is there twice" for one, count in collections.Counter(self.ids).items() if count > 1),
                *(f"anchor #{one} leads nowhere" for one in self.anchors if one not in self.ids),
                *(f"{one} has no text alternative" for one in self.unnamed), *([] if self.anchors else ["no anchors"])]


FAULTS_ON_SCREEN = """(() => {
  const faults = [], width = document.documentElement.clientWidth;
  document.querySelectorAll("details").forEach(one => one.open = true);
  if (document.documentElement.scrollWidth > width) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const one of document.querySelectorAll("svg text"))
    if (one.getBoundingClientRect().right > one.ownerSVGElement.getBoundingClientRect().right) faults.push(`cut off: ${one.textContent}`);
  for (const one of document.querySelectorAll("main *:not(svg *)"))
    if (one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1) faults.push(`overflow of ${one.tagName}.${one.className}: ${one.textContent.slice(0, 40)}`);
  const parts = colour => { const all = colour.match(/[\\d.]+/g).map(Number); return [all[0], all[1], all[2], all[3] ?? 1]; };
  const over = (under, top) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = colour => { const [r, g, b] = colour.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const ground = one => { const layers = []; for (; one; one = one.parentElement) layers.push(parts(getComputedStyle(one).backgroundColor));
                          return layers.reverse().reduce(over, [255, 255, 255, 1]); };
  const behind = (text, svg) => { const at = text.getBoundingClientRect(), y = at.y + at.height / 2;
    const boxes = [...svg.querySelectorAll("rect")].filter(box => { const b = box.getBoundingClientRect(); return b.x <= at.x && at.x < b.right && b.y <= y && y < b.bottom; });
    return boxes.length ? parts(getComputedStyle(boxes.at(-1)).fill) : ground(svg.parentElement); };
  const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (all.nextNode()) {
    const one = all.currentNode.parentElement, svg = one.closest("svg"), style = getComputedStyle(one);
    if (!all.currentNode.data.trim() || !one.checkVisibility()) continue;
    texts += 1;
    const under = svg ? behind(one, svg) : ground(one), found = contrast(over(under, parts(svg ? style.fill : style.color)), under);
    if (found < 4.5) faults.push(`contrast ${found.toFixed(2)} of "${all.currentNode.data.trim().slice(0, 40)}"`);
  }
  if (texts < 20) faults.push(`${texts} texts are visible`);
  return faults;
})()"""


class Browser:
    """Chromium without a window, driven through a pipe; its processes end and its profile is removed on exit."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="p2pd-report-browser-")
        (theirs, self.to), (self.back, answers) = os.pipe(), os.pipe()
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-breakpad",
                 "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "sh", CHROMIUM, *words], pass_fds=(theirs, answers),
                                        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(answers)
        self.sent, self.read, self.seen, self.session = 0, b"", [], {}
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
            self.ask("Page.enable")
            self.ask("Network.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        for _ in range(100):  # what was killed may still write
            shutil.rmtree(self.profile, ignore_errors=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 0)
                time.sleep(0.1)
                continue
            if not os.path.exists(self.profile):
                return
        raise AssertionError(f"chromium, or {self.profile}, stays")

    def message(self):
        while b"\0" not in self.read:
            if not select.select([self.back], [], [], 60)[0]:
                raise TimeoutError("chromium does not answer")
            got = os.read(self.back, 1 << 16)
            if not got:
                raise EOFError("chromium ended")
            self.read += got
        one, _, self.read = self.read.partition(b"\0")
        return json.loads(one)

    def ask(self, method, **parameters):
        self.sent += 1
        os.write(self.to, json.dumps({"id": self.sent, "method": method, "params": parameters, **self.session}).encode() + b"\0")
        while (one := self.message()).get("id") != self.sent:
            self.seen.append(one)
        if "error" in one:
            raise RuntimeError(f"{method}: {one['error']}")
        return one["result"]

    def look(self, file, width, scheme, media):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.seen.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.seen):
            self.seen.append(self.message())

    def value(self, text):
        return self.ask("Runtime.evaluate", expression=text, returnByValue=True)["result"]["value"]

    def requests(self):
        return [one["params"]["request"]["url"] for one in self.seen if one.get("method") == "Network.requestWillBeSent"]


class Report(Case):
    def report(self, *words, code=0, **more):
        done = self.ctl("report", *words, cwd=self.scratch, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def page(self, *words):
        page = Page(self.report("-", *words).stdout)
        self.assertEqual(page.faults(), [])
        return page.text + page.json

    def proven(self, gpus, record):
        """A machine whose run measured so many GPUs, before and after, as its state directory tells it."""
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
        page = self.report("-", "--soak", soak).stdout
        self.assertEqual(re.findall(r'<polyline class="(\w+)" points="([^"]*)"', page)[0], ("rate", "0.0,9.2 320.0,4.6 640.0,0.0 "))
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
                page = Page(file.read_text())
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
        self.assertIn("<script>alert(1)</script>", told)  # as text
        for secret in (uuid, "box7", "0123456789abcdef"):
            self.assertIn(secret, self.page("--no-redact"))


if __name__ == "__main__":
    unittest.main()
