#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
""".github/workflows: each "run" as the shells of GitHub take it, the scripts and suites that it names, the rights that it has. Needs no root."""
import os
import pathlib
import re
import subprocess
import unittest

import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted((TOP / ".github/workflows").glob("*.yml"))}
SUITES = set(re.findall(r"\[(\w+)\]", re.search(r"declare -A built=.*", (TOP / "tests/run").read_text())[0]))
SUITES |= set(re.search(r"for suite in ([\w ]+); do built", (TOP / "tests/run").read_text())[1].split())


def jobs():
    for workflow, document in WORKFLOWS.items():
        for name, job in document["jobs"].items():
            yield f"{workflow}: {name}", job


def variants(job):
    """The rows of the matrix; one empty row without a matrix."""
    return job.get("strategy", {}).get("matrix", {}).get("include", [{}])


def scripts():
    """Each step's script with each row of the matrix, and its shell: a job in a container has sh."""
    for name, job in jobs():
        for row in variants(job):
            for step in job["steps"]:
                if "run" in step:
                    text = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match, row=row: row[match[1]], step["run"])
                    yield name, text, "sh" if "container" in job else "bash"


class Workflows(unittest.TestCase):
    def test_scripts(self):
        for name, text, shell in scripts():
            with self.subTest(name, script=text):
                self.assertNotIn("${{", text, "a value of the event is no text of a script: put it into env")
                for argv in ([shell, "-n"], ["shellcheck", f"--shell={shell}", "-"]):
                    done = subprocess.run(argv, input=text + "\n", capture_output=True, text=True, check=False)
                    self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_what_scripts_name_is_there(self):
        named = set()
        for name, text, _ in scripts():
            for script, words in re.findall(r"(?m)(?:^|[ ;&|(])((?:tests|packaging)/\w+)( [^\n;&|]*)?", text):
                named.add(script)
                with self.subTest(name, script=script):
                    self.assertTrue(os.access(TOP / script, os.X_OK))
                    if script == "tests/run":
                        self.assertLessEqual(set(words.split()), SUITES)
                    if script == "packaging/deps":
                        done = subprocess.run([TOP / script, "list", *words.split()[1:]], capture_output=True, text=True, check=False)
                        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual({"tests/run", "packaging/release"}, named)

    def test_systems_are_those_of_the_readme(self):
        images = {row["image"] for row in variants(WORKFLOWS["ci.yml"]["jobs"]["tests"]) if not row["suites"]}
        said = re.search(r"x86_64; (.*?)\. Not tested", (TOP / "README.md").read_text())[1]
        told = {f"{name.lower()}:{version}" for name, versions in re.findall(r"(Debian|Ubuntu) ((?:[\d.]+(?:,| and)? ?)+)", said)
                for version in re.findall(r"[\d.]+", versions)}
        self.assertEqual(images, told)

    def test_a_compiler_cache_that_is_used_is_installed_and_kept(self):
        job = WORKFLOWS["ci.yml"]["jobs"]["tests"]
        self.assertIn("ccache", job["steps"][0]["run"])
        self.assertEqual([step["with"]["path"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache@")], [job["env"]["CCACHE_DIR"]])
        # in a container, github.workspace is a folder of the host: https://github.com/actions/runner/issues/2058
        self.assertNotIn("github.workspace", "".join((TOP / ".github/workflows" / name).read_text() for name in WORKFLOWS))

    def test_actions_are_pinned(self):
        for name, job in jobs():
            for step in job["steps"]:
                if "uses" in step:
                    self.assertRegex(step["uses"], r"\Aactions/[\w-]+@[0-9a-f]{40}\Z", name)
                    if step["uses"].startswith("actions/checkout@"):
                        self.assertIs(step["with"]["persist-credentials"], False, name)
        for name in WORKFLOWS:
            for line in (TOP / ".github/workflows" / name).read_text().splitlines():
                if "uses:" in line:
                    self.assertRegex(line, r"  # v\d+\.\d+\.\d+$")

    def test_no_job_has_both_the_key_and_the_right_to_write(self):
        for name, document in WORKFLOWS.items():
            self.assertIn(document["permissions"], ({}, {"contents": "read"}), name)
        for name, job in jobs():
            if "secrets." in str(job):
                self.assertEqual(job["permissions"], {"contents": "read"}, name)


if __name__ == "__main__":
    unittest.main()
