#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README.md is short, names existing files and suites, shows the ranges of config/kernel-table.yaml as they are, and describes plans
as they are. Every release of the table is one of the catalogue, or stands for later ones."""
import pathlib
import re
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/kernels"))
import kernel_table  # noqa: E402

README = (ROOT / "README.md").read_text()
LINES = 130  # two minutes of reading, with two screens
# fix that changes files of the installed driver -> fixes before it: the step itself must need a step with each of these, because a need
# that holds already brings none of its own
STAGED = {
    "driver-pins": {"driver-source", "driver-build", "driver-runfile", "way-back"},
    "packaged-driver": {"driver-source", "driver-build", "driver-runfile", "way-back"},
    "driver-userspace": {"driver-source", "driver-build", "driver-runfile"},
    "driver-modules": {"driver-source", "driver-build"},
    "driver-update": {"driver-source", "driver-build", "way-back"},
}


def steps_of(name):
    """Name of each step of a shipped plan to the step, including the steps of the plan that it is based on."""
    plan = yaml.safe_load((ROOT / f"config/plans/{name}.yaml").read_text())
    steps = steps_of(plan["based_on"]) if "based_on" in plan else {}
    kinds = ("gate", "goal", "upkeep", "requires", "alternative")
    return steps | {step[kind]: step for step in plan.get("steps", []) for kind in kinds if kind in step}


class Readme(unittest.TestCase):
    def test_two_minutes(self):
        self.assertLessEqual(README.count("\n"), LINES)

    def test_links(self):
        headings = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", README, re.M)}
        links = re.findall(r"\]\(([^)]+)\)", README)
        self.assertGreater(len(links), 5)
        for link in links:
            with self.subTest(link):
                if link.startswith("#"):
                    self.assertIn(link[1:], headings)
                elif not link.startswith("https://"):
                    self.assertTrue((ROOT / link).exists())

    def test_commands_of_the_tree(self):
        commands = re.findall(r"(?<![\w/.-])((?:packaging|tests|config)/[\w./-]*\w)((?: [\w-]+)*)", README)
        self.assertGreater(len(commands), 5)
        runs = (ROOT / "tests/run").read_text()
        suites = set(re.search(r'default="([^"]+)"', runs)[1].split()) | set(re.search(r'all="\$default ([^"]+)"', runs)[1].split())
        for path, words in commands:
            with self.subTest(path + words):
                self.assertTrue((ROOT / path).exists())
                if path == "tests/run":
                    self.assertEqual(set(words.split()) - suites, set())

    def test_ranges(self):
        self.assertEqual(kernel_table.in_readme(), kernel_table.ranges(kernel_table.read()), "tests/kernels/table writes it")

    def test_builds_are_those_of_the_catalogue(self):
        """Branches of the builds that need no permission."""
        patches = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text())["patches"].values()
        branches = [int(patch["base"].split(".")[0]) for patch in patches if patch["known"] != "single-source"]
        self.assertIn(f"Driver builds from {min(branches)} to {max(branches)}", README)

    def test_the_driver_is_changed_last(self):
        found = set()
        for name in (path.stem for path in (ROOT / "config/plans").glob("*.yaml")):
            steps = steps_of(name)
            for step in steps.values():
                if (fix := step.get("fix")) in STAGED:
                    found.add(fix)
                    with self.subTest(plan=name, fix=fix):
                        self.assertLessEqual(STAGED[fix], {steps[need].get("fix") for need in step["needs"]})
        self.assertEqual(found, set(STAGED))


class KernelTable(unittest.TestCase):
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
