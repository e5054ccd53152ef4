#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl features as Kubernetes' node feature discovery meets it: labels, and the time at which they end."""
import datetime
import stat
import unittest

from cli_case import Case, OPTIONS, plan_text, STEP
from tree import write

NAMESPACE = "feature.node.kubernetes.io/"


class Features(Case):
    def labels(self, text):
        """What the local source makes of the file; whatever stands above the first directive would never end."""
        first, *lines = text.splitlines()
        end = datetime.datetime.strptime(first, "# +expiry-time=%Y-%m-%dT%H:%M:%SZ")
        left = (end - datetime.datetime.utcnow()).total_seconds()
        self.assertTrue(60 < left <= 600, left)
        return dict(line.split("=") for line in lines)

    def test_nothing_has_run(self):
        done = self.ctl("features")
        self.assertEqual(done.returncode, 0, done.stderr)
        fit = {f"{NAMESPACE}p2pd.fit-for-{use}": "false" for use in ("copies", "nccl", "custom-all-reduce", "atomics", "managed-memory", "compressible-memory")}
        self.assertEqual(self.labels(done.stdout), {NAMESPACE + "p2pd.ready": "false", NAMESPACE + "p2pd.state": "idle"} | fit)
        self.assertEqual(self.json("features")["labels"], self.labels(done.stdout))

    def test_a_run_in_a_file(self):
        write(self.plan, plan_text(STEP, OPTIONS))
        self.json("apply", self.plan)
        file = self.scratch / "p2pd"
        file.write_text("old")
        done = self.ctl("features", "--output", file)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(self.labels(file.read_text())[NAMESPACE + "p2pd.state"], "rebooting")
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)

    def test_what_cannot_be_written(self):
        for words in (["--output", self.scratch / "nowhere/p2pd"], ["--json", "--output", self.scratch / "p2pd"]):
            done = self.ctl("features", *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn("p2pctl: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
