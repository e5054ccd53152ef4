#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A runfile larger than p2pd reads into memory, fetched by p2pctl over HTTP into a copy of a machine record: applied,
applied again, reverted; and from a server that cuts, with the partial file resumed. P2PD_BUILD: the build directory."""
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from terminal import agreed
from tree import MACHINES, differences, picture, scratch_directory, write
from web import WITHOUT_CURL

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
RUNFILE = hashlib.sha256(b"runfile").digest() * (70 * 2**20 // 32)
NAME = "NVIDIA-Linux-x86_64-999.9.9.run"

PLAN = """name: test
title: test
policy: {{attempts: 1, on_failure: {on_failure}}}
steps:
  - {{gate: runfile, title: R, check: driver-runfile, fix: driver-runfile, with: {{entry: test/main, mirrors: ["{url}"]}}}}
"""


class Server(http.server.BaseHTTPRequestHandler):
    """Serves the runfile, from the offset that a Range asks for; `cut`: bytes after which connections end and no new ones are accepted."""
    protocol_version = "HTTP/1.1"
    cut = None
    ranges = []

    def do_GET(self):
        if Server.cut == 0:
            self.close_connection = True
            return
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        Server.ranges.append(start)
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start}-{len(RUNFILE) - 1}/{len(RUNFILE)}")
        self.send_header("Content-Length", str(len(RUNFILE) - start))
        self.send_header("ETag", '"one"')
        self.end_headers()
        self.wfile.write(RUNFILE[start:] if Server.cut is None else RUNFILE[start:start + Server.cut])
        if Server.cut is not None:
            Server.cut, self.close_connection = 0, True

    def log_message(self, *_):
        pass


class Runfile(unittest.TestCase):
    def setUp(self):
        directory = scratch_directory("p2pd-staging-")
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)
        self.tree = self.scratch / "tree"
        shutil.copytree(MACHINES / "rtx4090-x2-am5", self.tree, symlinks=True)
        self.add_entry()
        self.before = picture(self.tree)
        self.cache = self.tree / "var/cache/p2pd/runfiles"
        Server.cut, Server.ranges = None, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def add_entry(self, **other):
        runfile = {"path": f"/XFree86/999.9.9/{NAME}", "bytes": len(RUNFILE), "sha256": hashlib.sha256(RUNFILE).hexdigest(), "known": "verified"}
        write(self.tree / "etc/p2pd/catalogue.d/test.yaml", json.dumps({
            "schema": "p2pd.catalogue/2", "releases": {"999.9.9": {"commit": "1" * 40, "known": "verified", "runfile": runfile}},
            "patches": {"test/main": {"repository": "file:///srv/none", "branch": "main", "commit": "2" * 40, "known": "verified",
                                      "base": "999.9.9", "architectures": {"Ada": "reported"}, **other}}}))

    def apply(self, on_failure="revert", prefix=()):
        write(self.scratch / "plan.yaml", PLAN.format(on_failure=on_failure, url=f"http://127.0.0.1:{self.server.server_port}"))
        return self.ctl("apply", self.scratch / "plan.yaml", prefix=prefix)

    def ctl(self, *words, prefix=()):
        # nobody listens on port 9: no test reaches the catalogue's own hosts
        environment = {**os.environ, "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
        done = subprocess.run([*prefix, P2PCTL, *map(str, agreed(words)), "--root", str(self.tree), "--json"], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        self.assertTrue(done.stdout, done.stderr)
        return json.loads(done.stdout)

    def assert_unchanged(self):
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def test_applied_twice_then_reverted(self):
        self.assertEqual(self.apply()["result"], "done")
        self.assertEqual((self.cache / NAME).read_bytes(), RUNFILE)
        self.assertEqual([path.name for path in self.cache.iterdir()], [NAME])
        again = self.apply()
        self.assertIs(again["changed"], False)
        self.assertEqual(Server.ranges, [0])
        self.server.shutdown()  # undo needs no network
        self.assertEqual(self.ctl("revert")["result"], "reverted")
        self.assert_unchanged()

    def test_what_could_not_be_chosen_is_chosen_later(self):
        shutil.rmtree(self.tree)
        shutil.copytree(MACHINES / "rtx4090-48g-x2", self.tree, symlinks=True)
        choice = "steps:\n  - {{gate: choice, title: C, check: driver-catalogue}}\n"
        with unittest.mock.patch(f"{__name__}.PLAN", PLAN.replace("steps:\n", choice).replace("test/main", "chosen")):
            blocked = self.apply()
        self.assertEqual((blocked["state"], self.chosen()), ("blocked", "chosen"))
        self.add_entry(dynamic_bar1=True)
        self.assertEqual(self.ctl("retry")["result"], "done")
        self.assertEqual(self.chosen(), "test/main")
        self.assertEqual((self.cache / NAME).read_bytes(), RUNFILE)

    def chosen(self):
        with contextlib.closing(sqlite3.connect(f"file:{self.tree}.p2pd/state.db?mode=ro", uri=True)) as database:
            (plan,) = database.execute("SELECT resolved FROM runs ORDER BY id DESC LIMIT 1").fetchone()
        return json.loads(plan)["steps"][-1]["with"]["entry"]

    @unittest.skipIf(os.geteuid() != 0, "hiding a program takes root")
    def test_without_curl_its_package_is_named(self):
        failed = self.apply(prefix=WITHOUT_CURL)
        self.assertEqual(failed["state"], "failed", failed)
        self.assertIn("curl is not installed", failed["reason"])
        self.assertIn("apt-get install curl", json.dumps(failed))
        self.assertEqual(Server.ranges, [])
        self.assert_unchanged()

    def test_half_a_download_is_undone(self):
        Server.cut = 10 * 2**20
        failed = self.apply()
        self.assertEqual(failed["state"], "failed", failed)
        self.assertIn("the runfile of 999.9.9 could not be fetched: http://127.0.0.1", failed["reason"])
        self.assert_unchanged()

    def test_half_a_download_is_gone_on_with(self):
        Server.cut = 10 * 2**20
        self.assertEqual(self.apply("keep")["state"], "failed")
        half = (self.cache / (NAME + ".part")).stat().st_size
        self.assertGreater(half, 0)
        Server.cut = None
        self.assertEqual(self.apply("keep")["result"], "done")
        self.assertEqual(Server.ranges, [0, half])
        self.assertEqual(self.ctl("revert")["result"], "reverted")
        self.assert_unchanged()


if __name__ == "__main__":
    unittest.main()
