#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""machine/fetch/download against servers that stall, cut, lie, refuse and send in circles. P2PD_BUILD: the build directory."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from web import WITHOUT_CURL, Web, cut, good, redirect, reset, stall, status

FETCH = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/fetch")
BODY = random.Random(1).randbytes(300_000)
SUM = hashlib.sha256(BODY).hexdigest()
NO_PROXY = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}


class Case(unittest.TestCase):
    def setUp(self):
        self.web = Web()
        self.addCleanup(self.web.close)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-download-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.file = self.directory / "file"
        self.part = self.directory / "file.part"

    def run_fetch(self, *words, env=None):
        done = subprocess.run([FETCH, *words], capture_output=True, text=True, timeout=60, env={**NO_PROXY, **(env or {})})
        self.assertIn(done.returncode, (0, 1), done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual("error" in said, done.returncode == 1, said)
        return said

    def fetch(self, route, *words, path="/x"):
        self.web.routes[path] = route
        return self.run_fetch("file", self.web.url + path, str(self.file), *words)

    def text(self, route, *words, path="/x"):
        self.web.routes[path] = route
        return self.run_fetch("text", self.web.url + path, *words)

    def assert_whole(self, said):
        self.assertEqual(said.get("sha256"), SUM, said)
        self.assertEqual(said["bytes"], len(BODY))
        self.assertEqual(self.file.read_bytes(), BODY)
        self.assertFalse(self.part.exists())

    def assert_error(self, said, code, pattern):
        self.assertEqual(said.get("code"), code, said)
        self.assertRegex(said["error"], pattern)
        self.assertFalse(self.file.exists())

    def ranges(self):
        return [asked[2] for asked in self.web.asked]


class Files(Case):
    def test_good(self):
        said = self.fetch(BODY, f"sha256={SUM}")
        self.assert_whole(said)
        self.assertEqual(said["progress"], [len(BODY), len(BODY)])
        self.assertEqual(self.ranges(), [None])

    def test_a_cut_is_taken_up_where_it_was(self):
        for words in ([], [f"sha256={SUM}"]):
            with self.subTest(words):
                self.web.asked.clear()
                self.assert_whole(self.fetch(cut(BODY, 100_000, good(BODY)), *words))
                self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_no_curl(self):
        if os.geteuid() != 0:
            self.skipTest("hiding a program takes root")
        done = subprocess.run([*WITHOUT_CURL, FETCH, "file", self.web.url + "/x", self.file], capture_output=True, text=True, timeout=60, env=NO_PROXY)
        said = json.loads(done.stdout)
        self.assert_error(said, "command", "curl is not installed")
        self.assertEqual(said["next"], "apt-get install curl")
        self.assertEqual(self.web.asked, [])

    def test_a_reset_is_taken_up(self):
        calls = []

        def route(request):
            calls.append(1)
            if len(calls) > 1:
                return good(BODY)(request)
            request.say(200, BODY[:50_000], Content_Length=len(BODY), ETag='"one"')
            return reset(request)
        self.assert_whole(self.fetch(route, f"sha256={SUM}"))
        self.assertGreater(len(calls), 1)

    def test_many_cuts(self):
        def route(request):
            start = int((request.headers.get("Range") or "bytes=0-")[6:-1])
            end = min(start + 40_000, len(BODY))
            code = 206 if start else 200
            request.say(code, BODY[start:end], Content_Length=len(BODY) - start, ETag='"one"',
                        Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}" if start else None)
        self.assert_whole(self.fetch(route))
        self.assertEqual(len(self.web.asked), 8)

    def test_cut_and_then_another_file(self):
        """If-Range detects it: the whole file is fetched again; a server without it is detected by the checksum."""
        other = b"other" * 50_000
        self.assert_whole(self.fetch(cut(other, 100_000, good(BODY), etag='"other"')))
        self.assertEqual(self.ranges(), [None, "bytes=100000-", None])

        def ignores_if_range(request):
            start = int((request.headers.get("Range") or "bytes=0-")[6:-1])
            request.say(206 if start else 200, BODY[start:], Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
        self.file.unlink()
        self.assert_whole(self.fetch(cut(other, 100_000, ignores_if_range), f"sha256={SUM}"))

    def test_without_a_validator_or_sum_nothing_is_pieced_together(self):
        self.assert_whole(self.fetch(cut(BODY, 100_000, good(BODY, etag=None), etag=None)))
        self.assertEqual(self.ranges(), [None, None])

    def test_ignored_range(self):
        """A server without ranges is asked for the whole."""
        self.assert_whole(self.fetch(cut(BODY, 100_000, lambda r: r.say(200, BODY)), f"sha256={SUM}"))
        self.assertEqual(self.ranges(), [None, "bytes=100000-", None])

    def test_trouble_between_does_not_lose_what_came(self):
        calls = []
        trouble = lambda r: (calls.append(1), status(503, ETag='"trouble"') if len(calls) == 1 else reset if len(calls) == 2 else good(BODY))[1](r)
        self.assert_whole(self.fetch(cut(BODY, 100_000, trouble)))
        self.assertEqual(self.ranges(), [None] + ["bytes=100000-"] * 3)

    def test_a_server_without_ranges_that_cuts_is_given_up(self):
        said = self.fetch(lambda r: r.say(200, BODY[:100_000], Content_Length=len(BODY)), f"sha256={SUM}")
        self.assert_error(said, "busy", "transfer closed|bytes missing")  # the messages of curl 7 and 8

    def test_another_range_than_asked(self):
        def shifted(request):
            if request.headers.get("Range"):
                return request.say(206, BODY[99_000:], Content_Range=f"bytes 99000-{len(BODY) - 1}/{len(BODY)}")
            return request.say(200, BODY)
        self.assert_whole(self.fetch(cut(BODY, 100_000, shifted), f"sha256={SUM}"))

    def test_a_part_that_nobody_asked_for(self):
        route = lambda r: r.say(206, BODY[5:], Content_Range=f"bytes 5-{len(BODY) - 1}/{len(BODY)}")
        self.assert_error(self.fetch(route), "invalid", "sends a part")

    def test_an_earlier_part(self):
        self.part.write_bytes(BODY[:200_000])
        self.assert_whole(self.fetch(BODY, f"sha256={SUM}"))
        self.assertEqual(self.ranges(), ["bytes=200000-"])
        for what, left in (("other bytes", b"x" * 200_000), ("longer", BODY + b"more"), ("longer than allowed", b"y" * 400_000)):
            with self.subTest(what):
                self.file.unlink()
                self.part.write_bytes(left)
                self.assert_whole(self.fetch(BODY, f"sha256={SUM}", "limit=350000"))

    def test_a_lie_about_the_length(self):
        said = self.fetch(lambda r: r.say(200, BODY, Content_Length=len(BODY) + 10), f"sha256={SUM}")
        self.assert_error(said, "busy", "transfer closed|bytes")  # too short each time
        self.part.unlink()
        said = self.fetch(lambda r: r.say(200, BODY, Content_Length=len(BODY) - 10), f"sha256={SUM}")
        self.assert_error(said, "invalid", "its SHA-256 is")
        self.assertFalse(self.part.exists())

    def test_too_large(self):
        self.assert_error(self.fetch(BODY, "limit=1000"), "invalid", "more than 1000 bytes")
        unbounded = lambda r: r.say(200, BODY, Content_Length=None)
        self.assert_error(self.fetch(unbounded, "limit=1000"), "invalid", "more than 1000 bytes")
        self.assertLessEqual(self.part.stat().st_size, 1000)

    def test_no_length(self):
        self.assert_whole(self.fetch(lambda r: r.say(200, BODY, Content_Length=None), f"sha256={SUM}"))

    def test_empty(self):
        said = self.fetch(b"")
        self.assertEqual((said["bytes"], self.file.read_bytes()), (0, b""))

    def test_a_stall_is_taken_up(self):
        self.assert_whole(self.fetch(stall(BODY, 100_000, good(BODY)), "stall=1", f"sha256={SUM}"))
        self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_refusals(self):
        for code, wanted, attempts in ((404, "not_found", 1), (410, "not_found", 1), (403, "denied", 1), (503, "busy", 3),
                                       (418, "invalid", 1), (204, "io", 1)):
            with self.subTest(code):
                self.web.asked.clear()
                self.assert_error(self.fetch(status(code)), wanted, f"the server answers {code}")
                self.assertEqual(len(self.web.asked), attempts)

    def test_trouble_that_passes(self):
        calls = []
        self.assert_whole(self.fetch(lambda r: (calls.append(1), status(503) if len(calls) < 3 else good(BODY))[1](r)))

    def test_nobody_there(self):
        url = self.web.url
        self.web.server.shutdown()
        self.web.server.server_close()
        said = self.run_fetch("file", url + "/x", str(self.file))
        self.assert_error(said, "busy", "127.0.0.1")
        self.assertIn("https_proxy", said["next"])

    def test_garbage(self):
        for line in (b"\x00\xff\xfe\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Range: bytes x-/\r\nETag: \r\n\r\n",
                     b"HTTP/1.1 200 OK\r\nX: " + b"a" * 400_000):
            with self.subTest(line[:30]):
                said = self.fetch(lambda r: r.wfile.write(line), f"sha256={SUM}", "stall=2")
                self.assertIn("error", said)
                self.assertFalse(self.file.exists())

    def test_a_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest("mounting takes root")
        self.web.routes["/x"] = BODY
        fill = 'mount -t tmpfs -o size=64k none "$1" && shift && "$@"'
        disk = self.directory / "disk"
        disk.mkdir()
        done = subprocess.run(["unshare", "--mount", "sh", "-c", fill, "sh", disk, FETCH, "file", self.web.url + "/x", disk / "file"],
                              capture_output=True, text=True, timeout=60, env=NO_PROXY)
        said = json.loads(done.stdout.splitlines()[0])
        self.assert_error(said, "io", "disk/file.part cannot be written: 0 MiB are free there")
        self.assertIn("Make room", said["next"])

    def test_an_address_is_taken_as_it_stands(self):
        """curl would expand brackets and braces to lists of addresses."""
        said = self.fetch(BODY, f"sha256={SUM}", path="/a[1-2]{b,c}\"\\'$x")
        self.assert_whole(said)
        self.assertEqual(len(self.web.asked), 1)

    def test_no_room(self):
        said = self.run_fetch("file", self.web.url + "/x", "/dev/full/x")
        self.assertIn(said["code"], ("io", "not_found"))


class Texts(Case):
    def test_good(self):
        self.assertEqual(self.text(b"a word")["text"], "a word")

    def test_bounds(self):
        self.assertEqual(self.text(BODY, "limit=100")["code"], "invalid")
        self.assertEqual(self.text(lambda r: r.say(200, BODY, Content_Length=None), "limit=100")["code"], "invalid")
        self.assertEqual(self.text(stall(b"abc", 2), "stall=1")["code"], "busy")
        self.assertEqual(self.text(cut(b"abc", 2, status(404)))["code"], "busy")

    def test_redirects(self):
        self.web.routes["/end"] = b"here"
        self.assertEqual(self.text(redirect("/end"))["text"], "here")
        said = self.text(redirect("/x"))
        self.assertEqual(said["code"], "invalid")
        self.assertRegex(said["error"], "more than 5 redirects")
        self.assertEqual(len([a for a in self.web.asked if a[1] == "/x"]), 1 + 6)

    def test_no_redirect_to_another_scheme(self):
        for to in ("file:///etc/hostname", "https://127.0.0.1:1/", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "dict://127.0.0.1/"):
            with self.subTest(to):
                said = self.text(redirect(to))
                self.assertEqual(said["code"], "invalid")
                self.assertRegex(said["error"], "another scheme")

    def test_a_redirect_that_leads_nowhere(self):
        self.assertIn("error", self.text(status(302)))
        self.assertIn("error", self.text(redirect("")))

    def test_proxy_of_the_environment(self):
        self.web.routes["http://example.invalid/x"] = b"by proxy"
        said = self.run_fetch("text", "http://example.invalid/x", env={"http_proxy": self.web.url})
        self.assertEqual(said.get("text"), "by proxy", said)

    def test_passwords_are_not_printed(self):
        said = self.run_fetch("text", self.web.url.replace("//", "//me:secret@") + "/none")
        self.assertEqual(said["code"], "not_found")
        self.assertNotIn("secret", json.dumps(said))


class Sizes(Case):
    def size(self, route):
        self.web.routes["/x"] = route
        return self.run_fetch("bytes", self.web.url + "/x")

    def test_by_range_and_without(self):
        self.assertEqual(self.size(BODY)["bytes"], len(BODY))
        self.assertEqual(self.size(lambda r: r.say(200, BODY))["bytes"], len(BODY))
        self.assertEqual(self.size(stall(BODY, 1000))["bytes"], len(BODY))  # no more than the beginning is read

    def test_not_told(self):
        self.assertEqual(self.size(lambda r: r.say(200, BODY, Content_Length=None))["code"], "invalid")
        self.assertEqual(self.size(b"")["code"], "invalid")
        self.assertEqual(self.size(status(404))["code"], "not_found")


if __name__ == "__main__":
    unittest.main()
