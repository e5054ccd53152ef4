# SPDX-License-Identifier: MIT
"""The page of p2pctl report as its readers get it: after its script ran in jsdom, its elements in order, and its display in Chromium."""
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
import subprocess
import tempfile
import time

VOID = {"meta", "br"}
SCRIPT = re.compile('(<script type="application/json" id="report">)(.*?)(</script>)', re.S)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def rendered(page, document=None):
    """The page after its script ran; with another document in it, if one is given."""
    if document is not None:
        text = json.dumps(document).replace("<", "\\u003c")
        page = SCRIPT.sub(lambda found: found[1] + text + found[3], page)
    script = pathlib.Path(__file__).with_name("rendered.js")
    done = subprocess.run(["node", script], input=page, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "NODE_PATH": "/usr/share/nodejs"})
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Page(html.parser.HTMLParser):
    """Elements that are opened and closed in order; what is loaded; the text; requirements of readers without eyes or a mouse."""

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
        elif where not in ("style", "script"):
            self.text += data
            self.texts[data.strip()] += 1

    def faults(self):
        """Faults of the page for a reader, as texts."""
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
        for _ in range(100):  # killed processes may still write
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
