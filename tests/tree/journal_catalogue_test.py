#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The journal's catalogue: an entry for each message id, as journalctl takes it and the manual names it."""
import pathlib
import re
import shutil
import tempfile
import unittest

from manual import Case, keys, needs, part, ROOT, run, UNITS

MESSAGE_IDS = ROOT / "daemon/base/message_ids.hpp"


class Catalogue(Case):
    """units/p2pd.catalog."""

    def setUp(self):
        self.text = (UNITS / "p2pd.catalog").read_text()
        parts = re.split(r"^-- ([0-9a-f]{32})\n", self.text, flags=re.M)
        self.entries = dict(zip(parts[1::2], parts[2::2]))
        self.assertEqual(len(self.entries), len(parts) // 2, "an id is there twice")

    def test_entries(self):
        for id_, entry in self.entries.items():
            with self.subTest(id_):
                head, _, body = entry.partition("\n\n")
                fields = dict(line.split(": ", 1) for line in head.splitlines())
                self.assertEqual(set(fields), {"Subject", "Defined-By", "Documentation"})
                self.assertEqual(fields["Defined-By"], "p2pd")
                self.assertIn('"p2pctl ', body)
                self.assertLessEqual(max(map(len, body.splitlines())), 80)

    def test_fields_are_replaced(self):
        # journalctl knows only names of letters and '_': @P2PD_STEP@ would stay as it is
        for name in re.findall(r"@(\w+)@", "".join(self.entries.values())):
            self.assertRegex(name, r"\A[A-Z_]+\Z")

    def test_manual(self):
        self.assertEqual(set(keys(part("p2pd.8", "JOURNAL"), "Li")), set(self.entries))

    @unittest.skipUnless(MESSAGE_IDS.exists(), f"SKIP: no {MESSAGE_IDS.name}")
    def test_ids(self):
        declared = re.findall(r'\b(k\w+)\s*=\s*"([0-9a-f]{32})"', MESSAGE_IDS.read_text())
        self.assertEqual(sorted(re.findall(r"^# (k\w+)\n-- ([0-9a-f]{32})$", self.text, re.M)), sorted(declared))

    @needs("journalctl")  # package systemd
    def test_journalctl_takes_it(self):
        with tempfile.TemporaryDirectory() as root:
            catalog = pathlib.Path(root) / "usr/lib/systemd/catalog"
            catalog.mkdir(parents=True)
            (pathlib.Path(root) / "var/lib/systemd/catalog").mkdir(parents=True)
            shutil.copy(UNITS / "p2pd.catalog", catalog)
            done = run("journalctl", "--update-catalog", "--root", root)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            listed = run("journalctl", "--list-catalog", "--root", root).stdout
        self.assertEqual({line.split()[0] for line in listed.splitlines()}, set(self.entries))


if __name__ == "__main__":
    unittest.main()
