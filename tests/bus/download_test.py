#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A download that would take hours, ended by a cancel, a stop of p2pd-worker, or Ctrl-C of p2pctl."""
import hashlib
import json
import signal
import subprocess
import time
import unittest

from bus_case import Case, until
from web import Web, good, stall

RUNFILE = hashlib.sha256(b"runfile").digest() * 4096
HALF, NAME = len(RUNFILE) // 2, "NVIDIA-Linux-x86_64-9.9.9.run"
WITHIN = 1.0  # second
CATALOGUE = {
    "schema": "p2pd.catalogue/2",
    "releases": {"9.9.9": {"commit": "1" * 40, "known": "verified", "runfile": {
        "path": f"/XFree86/9.9.9/{NAME}", "bytes": len(RUNFILE), "sha256": hashlib.sha256(RUNFILE).hexdigest(), "known": "verified"}}},
    "patches": {"test/main": {"repository": "file:///srv/none", "branch": "main", "commit": "2" * 40, "known": "verified", "base": "9.9.9",
                              "architectures": {"Ada": "reported"}}},
}
PLAN = """name: fetch
title: a slow server
steps:
  - {{gate: runfile, title: R, check: driver-runfile, fix: driver-runfile, with: {{entry: test/main, mirrors: ["{url}"]}}}}
"""


class SlowServer(Case):
    def setUp(self):
        self.web = Web()
        self.addCleanup(self.web.close)
        self.web.routes[f"/XFree86/9.9.9/{NAME}"] = stall(RUNFILE, HALF, then=good(RUNFILE))
        super().setUp()

    def start(self):
        self.write("etc/p2pd/catalogue.d/test.yaml", json.dumps(CATALOGUE))
        self.write("etc/p2pd/plans/fetch.yaml", PLAN.format(url=self.web.url))
        super().start()
        self.file = self.bus.place / "cache/p2pd/runfiles" / NAME
        self.part = self.file.with_name(NAME + ".part")

    def downloading(self):
        until(lambda: self.part.exists() and self.part.stat().st_size == HALF, lambda: f"half of the file: {self.bus.status()}")
        return time.monotonic()

    def assert_ended(self, begun):
        self.assertLess(time.monotonic() - begun, WITHIN)

    def test_cancel(self):
        self.apply("fetch")
        begun = self.downloading()
        self.root.call("Cancel")
        self.bus.settle("idle")
        self.assert_ended(begun)
        self.assertFalse(self.part.exists(), "a cancel undoes what the run did")
        self.assertFalse(self.file.exists())

    def test_stop_and_start_again(self):
        run = self.apply("fetch")
        begun = self.downloading()
        self.assertEqual(self.bus.end("walk"), 0)
        self.assert_ended(begun)
        self.assertEqual(self.part.stat().st_size, HALF, "kept for the resume")
        self.bus.start_walk()
        self.bus.settle("idle")
        self.assertEqual(self.file.read_bytes(), RUNFILE)
        self.assertEqual([range for _, _, range in self.web.asked], [None, f"bytes={HALF}-"])
        self.assert_one_run(run)

    def test_ctrl_c(self):
        self.bus.end("walk")
        process = subprocess.Popen(self.bus.inside(self.bus.bin / "p2pctl", "apply", "--yes", "fetch", "--no-dbus"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        begun = self.downloading()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        self.assert_ended(begun)
        self.assertIn("asked to stop", out + error)


if __name__ == "__main__":
    unittest.main()
