#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl record, and --root with what it wrote: one file. P2PD_BUILD: the build directory."""
import json
import os
import unittest

from cli_case import Case
from tree import picture, write

LOOKS = (["doctor"], ["plan"], ["catalogue"], ["explain", "gpus"], ["report", "-"], ["status"], ["history"], ["is-ready"], ["metrics"],
         ["features"])


class OneFile(Case):
    def setUp(self):
        super().setUp()
        self.file = self.scratch / "box.json"
        self.said = self.json("record", self.file)
        self.temporary = self.scratch / "tmp"
        self.temporary.mkdir()

    def look(self, *words, root=None):
        """Runs p2pctl with a directory of its own for temporary files, which is empty again afterwards."""
        done = self.ctl(*words, root=root or self.file, env={**os.environ, "TMPDIR": str(self.temporary)})
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertNotIn(str(self.temporary), done.stdout + done.stderr)
        return done

    def test_what_is_written(self):
        record = json.loads(self.file.read_text())
        self.assertEqual((record["schema"], record["name"]), ("p2pd.machine/2", "box"))
        self.assertEqual((self.said["path"], self.said["files"]), (str(self.file), len(record["files"])))
        self.assertIn(f"next: p2pctl doctor --root {self.scratch / 'again.json'}", self.ctl("record", self.scratch / "again.json").stdout)
        self.assertEqual(sorted(p.name for p in self.scratch.iterdir()), ["again.json", "box.json", "plan.yaml", "tmp", "tree"])

    def test_a_look_at_the_file_is_one_at_its_directory(self):
        directory = self.scratch / "box"
        self.json("record", "--unpack", self.file, directory)
        for verb in ("doctor", "plan"):
            found, wanted = (json.loads(self.look(verb, "--json", root=root).stdout) for root in (self.file, directory))
            self.assertEqual({**found, "took_ms": 0}, {**wanted, "took_ms": 0})

    def test_nothing_is_left_of_it(self):
        for words in (*LOOKS, ["doctor", "nowhere"], ["explain", "nowhere"], ["apply", self.plan], ["revert"], ["pause"]):
            with self.subTest(words=words):
                self.assertIn(self.look(*words).returncode, (0, 1, 2, 3, 4))
        self.assertFalse((self.scratch / "box.json.p2pd").exists())

    def test_what_writes_wants_a_directory(self):
        for words in (["apply", self.plan], ["catalogue", "add", "https://example.org/a/b", "c"]):
            with self.subTest(words=words):
                done = self.look(*words)
                self.assert_refused(done, "box.json is a file")
                self.assertIn(f'next: "p2pctl record --unpack {self.file} DIR"', done.stderr)

    def test_unpack(self):
        directory = self.scratch / "box"
        said = self.json("record", "--unpack", self.file, directory)
        self.assertEqual((said["path"], said["files"]), (str(directory), self.said["files"]))
        self.assertEqual(self.json("record", self.scratch / "again.json")["files"], self.said["files"])
        self.assertEqual(json.loads((directory / "machine.json").read_text())["schema"], "p2pd.machine/1")
        self.assertEqual((directory / "proc/cmdline").read_text(), (self.tree / "proc/cmdline").read_text())
        before = picture(directory)
        self.assert_refused(self.ctl("record", "--unpack", self.file, directory), "box is not empty")
        self.assertEqual(picture(directory), before)
        self.assertEqual(self.ctl("record", "--unpack", self.file).returncode, 1)
        self.assertEqual(self.ctl("record", self.scratch / "new.json", self.scratch / "new").returncode, 1)

    def test_nothing_is_overwritten(self):
        (self.scratch / "link").symlink_to("nowhere")
        for path in (self.file, self.tree, self.scratch / "link"):
            with self.subTest(path=path.name):
                before = picture(self.scratch)
                done = self.ctl("record", path)
                self.assert_refused(done, f"{path.name} exists")
                self.assertIn("next: Name a new file", done.stderr)
                self.assertEqual(picture(self.scratch), before)
        self.assert_refused(self.ctl("record", self.scratch / "nowhere/box.json"), "its directory does not exist")

    def test_strangers_files(self):
        record = json.loads(self.file.read_text())
        rows = [("", "not JSON"), ("name: test\n", "not JSON"), ("{}", "schema"), ((self.tree / "machine.json").read_text(), "schema"),
                (json.dumps({**record, "files": {"../../escaped": ["x"]}}), r'"\.\./\.\./escaped"'),
                (json.dumps({**record, "files": {"a": {"link": "/"}, "a/tmp/escaped": ["x"]}}), "a file and a directory")]
        for text, pattern in rows:
            with self.subTest(text=text[:60]):
                write(self.file, text)
                done = self.look("doctor")
                self.assert_refused(done, "box.json: .*" + pattern)
                self.assertIn("next: ", done.stderr)

    def test_links_of_a_strangers_file_stay_inside(self):
        record = json.loads(self.file.read_text())
        write(self.scratch / "secret", "iommu=s3cret\n")
        for target in (str(self.scratch / "secret"), "../" * 30 + str(self.scratch / "secret")[1:]):
            record["files"]["proc/cmdline"] = record["files"]["lspci-xxxx.txt"] = {"link": target}
            write(self.file, json.dumps(record))
            self.assertNotIn("s3cret", self.look("doctor").stdout)


if __name__ == "__main__":
    unittest.main()
