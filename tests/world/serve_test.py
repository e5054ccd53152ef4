#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server of the driver world answers as told, to curl: whole files and ranges, cut, stalled, with lies about them."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
SERVE = pathlib.Path(__file__).resolve().parents[1] / "sim/driver_world/serve"


def server_class():
    loader = importlib.machinery.SourceFileLoader("serve", str(SERVE))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("serve", loader))
    loader.exec_module(module)
    return module.Server


class Http(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="p2pd-serve.")))
        self.data = bytes(range(256)) * 1024
        (self.folder / "a file.run").write_bytes(self.data)
        self.server = server_class()(self.folder)
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.got = self.folder / "got"

    def run_curl(self, path, *words):
        return subprocess.run(["curl", "-sS", "--noproxy", "*", *words, self.server.url() + path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=300)

    def curl(self, path, *words):
        """Exit status of curl, and what it wrote."""
        done = self.run_curl(path, "-o", self.got, *words)
        return done.returncode, self.got.read_bytes() if self.got.exists() else b""

    def ask(self, path):
        return self.run_curl(path).stdout

    def test_whole_and_head(self):
        self.assertEqual(self.curl("/a%20file.run"), (0, self.data))
        self.assertIn("Content-Length: 262144", self.curl("/a%20file.run", "-I")[1].decode())
        self.assertEqual(self.curl("/none", "-f")[0], 22)
        self.assertEqual(self.curl("/../../../etc/passwd", "-f", "--path-as-is")[0], 22)

    def test_a_cut_download_resumes(self):
        self.assertEqual(self.curl("/a%20file.run?cut=100000"), (18, self.data[:100000]))
        self.assertEqual(self.curl("/a%20file.run", "-C", "-"), (0, self.data))
        row = json.loads(self.ask("/-/log").splitlines()[1])
        self.assertEqual((row["status"], row["range"], row["sent"]), (206, "bytes=100000-", 162144))

    def test_ranges(self):
        self.assertEqual(self.curl("/a%20file.run", "-r", "-5"), (0, self.data[-5:]))
        self.assertEqual(self.curl("/a%20file.run", "-r", "7-9"), (0, self.data[7:10]))
        self.assertEqual(self.curl("/a%20file.run", "-f", "-r", "262144-")[0], 22)
        self.assertEqual(self.curl("/a%20file.run", "-H", 'If-Range: "other"', "-H", "Range: bytes=7-9"), (0, self.data))
        self.assertEqual(self.curl("/a%20file.run?whole=1", "-H", "Range: bytes=7-9"), (0, self.data))

    def test_stall(self):
        self.assertEqual(self.curl("/a%20file.run?stall=1000", "--max-time", "1"), (28, self.data[:1000]))

    def test_lie(self):
        self.assertEqual(self.curl("/a%20file.run?lie=10"), (18, self.data))
        self.assertEqual(self.curl("/a%20file.run?lie=-10")[1], self.data[:-10])

    def test_wrong(self):
        code, got = self.curl("/a%20file.run?wrong=5")
        self.assertEqual((code, got[5], got[6:]), (0, self.data[5] ^ 0xff, self.data[6:]))

    def test_busy(self):
        self.assertEqual(self.ask("/-/fault?path=/a%20file.run&busy=2"), "")
        self.assertEqual([self.curl("/a%20file.run", "-f")[0] for _ in range(3)], [22, 22, 0])

    def test_beforehand_and_times(self):
        self.ask("/-/fault?path=/a%20file.run&cut=3&times=1")
        self.assertEqual([self.curl("/a%20file.run")[0] for _ in range(2)], [18, 0])
        self.ask("/-/fault?path=/a%20file.run&cut=3")
        self.assertEqual([self.curl("/a%20file.run")[0] for _ in range(2)], [18, 18])
        self.ask("/-/clear")
        self.assertEqual(self.curl("/a%20file.run")[0], 0)

    def test_unknown_words(self):
        self.assertIn("no fault explode", self.ask("/a%20file.run?explode=1"))
        self.assertIn("without path", self.ask("/-/fault?cut=1"))
        self.assertIn("no verb; there are", self.ask("/-/verb"))


if __name__ == "__main__":
    unittest.main()
