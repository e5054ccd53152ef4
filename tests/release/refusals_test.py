#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What packaging/release and packaging/repository refuse: one sentence, and nothing is written; and that a repository is made of the same
bytes each time. Needs GnuPG and apt-ftparchive.
"""
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(p2pd VERSION ([\d.]+)", (TOP / "CMakeLists.txt").read_text())[1]
KEY = "key@example.org"


class Refusals(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        (self.place / "gnupg").mkdir(mode=0o700)
        (self.place / "tmp").mkdir()
        self.environment = {**os.environ, "GNUPGHOME": str(self.place / "gnupg"), "P2PD_KEY": KEY, "P2PD_URL": "https://example.org/p2pd",
                            "SOURCE_DATE_EPOCH": "1790000000", "TMPDIR": str(self.place / "tmp")}
        subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", KEY, "ed25519", "sign", "never"], check=True,
                       env=self.environment, stderr=subprocess.DEVNULL)
        self.package = self.made("p2pd")

    def made(self, name):
        control = self.place / name / "DEBIAN/control"
        control.parent.mkdir(parents=True)
        control.write_text(f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: made for a test\n")
        subprocess.run(["dpkg-deb", "-b", self.place / name, self.place / f"{name}.deb"], check=True, stdout=subprocess.DEVNULL)
        return self.place / f"{name}.deb"

    def run_it(self, program, *words, **environment):
        return subprocess.run([TOP / "packaging" / program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**self.environment, **environment})

    def refused(self, sentence, program, *words, **environment):
        done = self.run_it(program, *words, **environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, rf"\A(release|repository): .*{re.escape(sentence)}.*\n\Z")
        self.assertFalse((self.place / "out").exists())
        self.assertEqual(list((self.place / "tmp").iterdir()), [])

    def test_repository(self):
        out = self.place / "out"
        self.refused("name a key that", "repository", out, self.package, P2PD_KEY="")
        self.refused("name a key that", "repository", out, self.package, P2PD_KEY="nobody@example.org")
        self.refused("name the address", "repository", out, self.package, P2PD_URL="")
        self.refused("name the address", "repository", out, self.package, P2PD_URL="example.org")
        self.refused("is no package of p2pd", "repository", out, self.made("other"))
        self.refused("is no package of p2pd", "repository", out, TOP / "README.md")
        self.refused("is there already: name a new folder", "repository", self.place / "tmp", self.package)
        self.assertEqual(self.run_it("repository", out).returncode, 2)

    def test_release(self):
        out = self.place / "out"
        self.refused(f"this is the source of {VERSION}, not of 99.1", "release", "99.1", out)
        self.refused("is there already: name a new folder", "release", VERSION, self.place / "tmp")
        self.assertEqual(self.run_it("release", VERSION).returncode, 2)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_release_of_a_commit(self):
        clone, out = self.place / "clone", self.place / "out"
        subprocess.run(["git", "-c", f"safe.directory={TOP}", "clone", "--quiet", "--depth", "1", f"file://{TOP}", clone], check=True)
        release = clone / "packaging/release"
        shutil.copy(TOP / "packaging/release", release)  # the one that is tested may not be committed yet
        shutil.copy(TOP / "packaging/repository", clone / "packaging/repository")
        subprocess.run(["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--allow-empty", "-am", "a"], check=True)
        self.refused("name a key that", release, VERSION, out, P2PD_KEY="nobody@example.org")
        self.refused("is no package of p2pd", release, VERSION, out, self.made("other"))
        room = self.place / "room"
        room.mkdir()
        done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=50m tmpfs "$0" && TMPDIR=$0 exec "$@"', room, release, VERSION, out],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=self.environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"\Arelease: .* has (50|49) MB free, 8000 are needed\n\Z")
        (clone / "LICENSE").write_text("changed")
        self.refused("changes that are not committed", release, VERSION, out)
        self.assertFalse(out.exists())

    def test_same_bytes(self):
        for name in ("one", "two"):
            done = self.run_it("repository", self.place / name, self.package)
            self.assertEqual(done.returncode, 0, done.stdout)
        compared = filecmp.dircmp(self.place / "one", self.place / "two")
        self.assertEqual((compared.left_only, compared.right_only, compared.diff_files), ([], [], []))
        files = [path.relative_to(self.place / "one") for path in (self.place / "one").rglob("*") if path.is_file()]
        self.assertEqual(len(files), 7)
        self.assertEqual(filecmp.cmpfiles(self.place / "one", self.place / "two", files, shallow=False)[1:], ([], []))
        verified = subprocess.run(["gpg", "--verify", self.place / "one/dists/stable/Release.gpg", self.place / "one/dists/stable/Release"],
                                  env=self.environment, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(verified.returncode, 0, verified.stderr)


if __name__ == "__main__":
    if not shutil.which("apt-ftparchive") or not shutil.which("gpg"):
        print("not run: packaging/deps install release")
        sys.exit(77)
    unittest.main()
