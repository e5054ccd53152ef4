#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""portable_test.py OUT [SUITE]...: the archive of portable programs that packaging/release made in OUT.

In a minimal tree of each suite of Debian and Ubuntu that its archive has, a user without rights unpacks nothing but that archive: p2pctl
says of a machine record what the p2pctl of P2PD_BUILD says of it, records and looks at the tree itself, and has verbs that need the package
refuse. Needs root, mmdebstrap and the archives; a tree that cannot be made is a failure.
"""
import ctypes
import errno
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("P2PD_BUILD") or TOP / "build/dev").resolve()
SUITES = ["bullseye", "bookworm", "trixie", "sid", "focal", "jammy", "noble", "resolute"]
TOO_OLD = "bionic"  # glibc 2.27
GLIBC = (2, 31)
OF_GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
LIMIT = 12 << 20
RECORDS = ["rtx4090-x2-first-day", "rtx3090-x4-epyc", "no-gpu"]
NOBODY = 65534


def run(argv, **more):
    return subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


def comparable(output):
    return re.sub(r'"took_ms": \d+', "", output)


def as_on_linux_5_4():
    """Lets this process and its children have no openat2(2) and close_range(2), as on Ubuntu 20.04: seccomp(2) answers ENOSYS."""
    code = [(0x20, 0, 0, 0), (0x15, 1, 0, 437), (0x15, 0, 1, 436), (0x06, 0, 0, 0x00050000 | errno.ENOSYS), (0x06, 0, 0, 0x7fff0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    filled = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
    if ctypes.CDLL(None).prctl(22, 2, ctypes.create_string_buffer(filled), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError("prctl")


class Portable(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.place.chmod(0o755)
        self.records = BUILD / "machines"

    def unpack(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        done = run(["tar", "--zstd", "-xf", ARCHIVE, "-C", folder])
        self.assertEqual(done.returncode, 0, done.stdout)
        return folder / ARCHIVE.name.removesuffix(".tar.zst")

    def tree(self, suite):
        """A tree of the suite, with the archive in a folder of a user, and the records."""
        tree = self.place / suite
        done = run([TOP / "tests/release/tree", suite, tree])
        self.assertEqual(done.returncode, 0, done.stdout)
        home = tree / "srv/of a user"
        for record in RECORDS:
            (tree / "srv/machines").mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-r", self.records / record, tree / "srv/machines"], check=True)
        self.unpack(home).rename(home / "p2pd")
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", home], check=True)
        return tree

    @staticmethod
    def inside(tree, *argv, before=None):
        """Runs a program of the archive there, as a user without rights; calls `before` in the new process."""
        return run(["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --rbind /proc "$0/proc" && mount --rbind /sys "$0/sys" && '
                    f'exec chroot --userspec={NOBODY}:{NOBODY} "$0" env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 HOME=/nonexistent sh -c \'cd "/srv/of a user"; exec "$@"\' sh "$@"',
                    tree, *argv], preexec_fn=before)

    def test_archive(self):
        self.assertLess(ARCHIVE.stat().st_size, LIMIT)
        tree = self.unpack(self.place / "archive")
        for path in (tree / "bin").iterdir():
            with self.subTest(path.name):
                needed = set(re.findall(r"NEEDED +(\S+)", run(["objdump", "-p", path]).stdout))
                self.assertEqual(needed - OF_GLIBC, set())
                versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", run(["objdump", "-T", path]).stdout)}
                self.assertLessEqual(max(versions), GLIBC)
                self.assertEqual(path.stat().st_uid, 0)

    def test_in_trees(self):
        for suite in WORDS or SUITES:
            with self.subTest(suite):
                self.try_in(self.tree(suite))
                print(f"ok {suite}", flush=True)

    def try_in(self, tree):
        version = ARCHIVE.name.split("-")[1]
        for program in ("p2pctl", "p2p-bench"):
            for start in (program, f"bin/{program}"):
                said = self.inside(tree, f"p2pd/{start}", "--version")
                self.assertEqual((said.returncode, said.stdout), (0, f"{program} {version}\n"))
        self.assertIn("--collectives", self.inside(tree, "p2pd/p2p-bench", "--help").stdout)
        for record in RECORDS:
            for verb in (["doctor"], ["plan"], ["doctor", "--json"]):
                wanted = run([BUILD / "bin/p2pctl", *verb, "--root", self.records / record])
                said = self.inside(tree, "p2pd/p2pctl", *verb, "--root", f"/srv/machines/{record}")
                self.assertEqual(comparable(said.stdout).replace("/srv/machines", str(self.records)), comparable(wanted.stdout), record)
                self.assertEqual(said.returncode, wanted.returncode)
        said = self.inside(tree, "p2pd/p2pctl", "report", "--root", "/srv/machines/no-gpu", "report.html")
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn("<html", (tree / "srv/of a user/report.html").read_text())
        # this machine
        self.assertEqual(self.inside(tree, "p2pd/p2pctl", "record", "here.json").returncode, 0)
        for argv in (["doctor"], ["doctor", "--root", "here.json"]):
            said = self.inside(tree, "p2pd/p2pctl", *argv)
            self.assertIn("\nP2P: ", said.stdout)
            self.assertIn(said.returncode, (0, 2, 4))
        said = self.inside(tree, "p2pd/p2pctl", "doctor", before=as_on_linux_5_4)
        self.assertIn("\nP2P: ", said.stdout)
        said = self.inside(tree, "p2pd/p2pctl", "doctor", "--root", "here.json", before=as_on_linux_5_4)
        self.assertIn("Use --root on Linux 5.6 or newer", said.stdout)
        said = self.inside(tree, "p2pd/p2pctl", "bench")
        self.assertEqual(said.returncode, 4, said.stdout)  # nothing to prove
        before = run(["find", tree / "etc", tree / "var", tree / "usr", "-newer", tree / "srv/of a user/report.html"]).stdout
        for verb in ("apply", "revert", "retry"):
            said = self.inside(tree, "p2pd/p2pctl", verb)
            self.assertEqual(said.returncode, 4, said.stdout)
            self.assertEqual(said.stdout, f"p2pctl: {verb} needs p2pd installed; this is p2pctl alone\n"
                             f"  next: install the package of the same release: sudo apt install ./p2pd_{version}_amd64.deb\n")
        self.assertEqual(self.inside(tree, "p2pd/p2pctl", "catalogue", "allow", "x").returncode, 4)
        self.assertEqual(run(["find", tree / "etc", tree / "var", tree / "usr", "-newer", tree / "srv/of a user/report.html"]).stdout, before)

        for library in (path for folder in ("lib", "usr/lib") for path in (tree / folder / "x86_64-linux-gnu").glob("libsystemd.so*")):
            library.unlink()
        if self.inside(tree, "true").returncode != 0:
            return  # Ubuntu 26.04, whose env(1) is linked against it
        for verb, code in (("doctor", (0, 2, 4)), ("status", (3,)), ("history", (0,))):
            said = self.inside(tree, "p2pd/p2pctl", verb)
            self.assertIn(said.returncode, code, f"{verb} without libsystemd: {said.stdout}")

    def test_glibc_too_old(self):
        tree = self.tree(TOO_OLD)
        for program in ("p2pctl", "p2p-bench"):
            said = self.inside(tree, f"p2pd/{program}", "--version")
            self.assertEqual((said.returncode, said.stdout), (1, f"{program}: this machine has glibc 2.27, and glibc 2.31 is needed: "
                                                                 "use Debian 11, Ubuntu 20.04, or newer\n"))

    def test_a_damaged_archive(self):
        damaged = self.place / ARCHIVE.name
        content = bytearray(ARCHIVE.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        done = run(["sha256sum", "--check", "--ignore-missing", ARCHIVE.parent / "SHA256SUMS"], cwd=self.place)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{ARCHIVE.name}: FAILED", done.stdout)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (found := list(pathlib.Path(sys.argv[1]).glob("p2pd-*-linux-x86_64.tar.zst"))):
        sys.exit(__doc__)
    if os.geteuid() != 0:
        print("not run: a tree with files of others needs root")
        sys.exit(77)
    ARCHIVE, WORDS = found[0].resolve(), sys.argv[2:]
    del sys.argv[1:]
    unittest.main()
