#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README.md shows config/kernel-table.yaml as it is, and every release of it is one of the catalogue, or stands for later ones."""
import pathlib
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/kernels"))
import kernel_table  # noqa: E402


class KernelTable(unittest.TestCase):
    def test_readme(self):
        self.assertEqual(kernel_table.in_readme(), kernel_table.markdown(kernel_table.read()), "tests/kernels/table writes it")

    def test_sources_are_those_of_the_catalogue(self):
        catalogue = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text())
        for release, row in kernel_table.read()["releases"].items():
            patch = catalogue["patches"].get(row["source"])
            if patch is None:
                self.assertEqual(row["source"], "NVIDIA's tag", release)
                continue
            tree = patch.get("tree") if patch["base"] == release else patch["grafts"][release]
            self.assertEqual(row["tree"], tree, release)


if __name__ == "__main__":
    unittest.main()
