#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The made runfile behaves as NVIDIA's installer does: flags, default answers of --silent, exit codes, manifest, uninstall.

It works below DRIVER_WORLD_ROOT, as the user who runs the test."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
WORLD = pathlib.Path(__file__).resolve().parents[1] / "sim/driver_world"
sys.path.insert(0, str(WORLD))
from maker import debian, runfile  # noqa: E402

VERSIONS = ["570.86.11", "570.148.11"]
USERSPACE = ["--silent", "--no-kernel-modules", "--no-kernel-module-source"]
LIB = "usr/lib/x86_64-linux-gnu"


def setUpModule():
    global FOLDER, RUNFILES
    FOLDER = tempfile.TemporaryDirectory(prefix="p2pd-runfile.")
    out = pathlib.Path(FOLDER.name, "http")
    for version in VERSIONS:
        runfile.make(out, version, None)
    RUNFILES = [out / runfile.path(version)[1:] for version in VERSIONS]


def tearDownModule():
    FOLDER.cleanup()


class Case(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(dir=FOLDER.name))
        (self.root / "var/log").mkdir(parents=True)
        (self.root / "proc").mkdir()

    def run_in_root(self, *argv):
        return subprocess.run([str(word) for word in argv], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "DRIVER_WORLD_ROOT": str(self.root), "TMPDIR": FOLDER.name}, check=False, timeout=120)

    def install(self, *words, which=0):
        return self.run_in_root("sh", RUNFILES[which], *words)

    def uninstall(self, *words):
        return self.run_in_root(self.root / "usr/bin/nvidia-uninstall", "--silent", *words)

    def log(self, name="nvidia-installer"):
        return (self.root / f"var/log/{name}.log").read_text()

    def put(self, name, content="", mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)

    def tree(self):
        return {str(path.relative_to(self.root)): os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
                for path in self.root.rglob("*") if not str(path.relative_to(self.root)).startswith("var/log")}

    def has(self, name):
        return os.path.lexists(self.root / name)


class Header(Case):
    def test_extract_only(self):
        done = self.install("-x")
        self.assertEqual(done.returncode, 0, done.stdout)
        folder = self.root / "NVIDIA-Linux-x86_64-570.86.11"
        for name in (".manifest", "nvidia-installer", "libcuda.so.570.86.11", "kernel-open/Kbuild", "kernel-open/nvidia/nv-kernel.o_binary"):
            self.assertTrue((folder / name).is_file(), name)
        self.assertEqual(self.install("--extract-only").returncode, 1, "over what is there")
        self.assertEqual(self.install("-x", "--target", "elsewhere").returncode, 0)
        self.assertTrue(self.has("elsewhere/.manifest"))
        self.assertFalse(self.has("usr"))

    def test_damaged(self):
        data = RUNFILES[0].read_bytes()
        for name, content in (("cut", data[:-1000]), ("wrong", data[:-1000] + b"x" + data[-999:])):
            (self.root / name).write_bytes(content)
            done = self.run_in_root("sh", name, *USERSPACE)
            self.assertEqual((done.returncode, "Error in check sums" in done.stdout), (1, True), done.stdout)
        self.assertFalse(self.has("usr"))

    def test_check_and_info(self):
        self.assertEqual(self.install("--check").returncode, 0)
        self.assertIn("570.86.11", self.install("--info").stdout)


class Options(Case):
    def test_all_that_p2pd_may_pass(self):
        done = self.install(*USERSPACE, "--no-x-check", "--no-nouveau-check", "--no-check-for-alternate-installs", "--skip-module-load",
                            "--allow-installation-with-running-driver", "--kernel-module-type=open", "-M", "open", "--rebuild-initramfs",
                            f"--log-file-name={self.root}/own.log", "--ui=none", "-j=2")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("is now complete", (self.root / "own.log").read_text())

    def test_unknown_ones_end_with_1_and_nothing_done(self):
        for words in (["--bogus"], ["--no-such=1"], ["--kernel-module-type=closed"], ["--log-file-name"], ["word"], ["-?"]):
            done = self.install("--silent", *words)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn("Invalid commandline", done.stdout)
        self.assertFalse(self.has("usr"))


class Traps(Case):
    """Conditions on which --silent aborts by its default answer, and the flag that skips each check."""

    def refused(self, why, *words):
        done = self.install(*USERSPACE, *words)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(why, self.log())
        self.assertIn("(Answer: Abort installation)", self.log())
        self.assertFalse(self.has("usr/bin/nvidia-smi"))

    def accepted(self, *words):
        done = self.install(*USERSPACE, *words)
        self.assertEqual(done.returncode, 0, self.log())
        self.assertTrue(self.has("usr/bin/nvidia-smi"))

    def test_x(self):
        self.put("tmp/.X0-lock", "       123\n")
        (self.root / "proc/123").mkdir()
        self.refused("running an X server")
        self.accepted("--no-x-check")

    def test_a_stale_lock_of_x(self):
        self.put("tmp/.X0-lock", "       123\n")
        self.accepted()

    def test_alternate_install(self):
        self.put("usr/lib/nvidia/alternate-install-present")
        self.refused("using a different installer")
        self.accepted("--no-check-for-alternate-installs")

    def test_nouveau(self):
        device = self.root / "sys/bus/pci/devices/0000:01:00.0"
        device.mkdir(parents=True)
        (device / "driver").symlink_to("../../../../bus/pci/drivers/nouveau")
        self.refused("Nouveau")
        self.assertTrue(self.has("etc/modprobe.d/nvidia-installer-disable-nouveau.conf"))
        self.accepted("--no-nouveau-check")

    def test_a_hook_of_the_distribution_ends_it(self):
        self.put("usr/lib/nvidia/pre-install", debian.TEXTS.text("pre-install"), 0o755)
        self.assertEqual(self.install(*USERSPACE).returncode, 1)
        self.assertFalse(self.has("usr/bin/nvidia-smi"))
        self.accepted("--no-distro-scripts")

    def test_a_loaded_module_matters_with_kernel_modules_only(self):
        self.put("proc/modules", "nvidia 1 2 nvidia_uvm, Live 0x0\n")
        self.accepted()
        done = self.install("--silent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("appears to be already loaded", self.log())
        self.install("--silent", "--allow-installation-with-running-driver", "--kernel-name", "0.0.0-none")
        self.assertIn("Unable to find the kernel source tree", self.log())


class Lifecycle(Case):
    def test_install_and_uninstall_leave_no_trace(self):
        before = self.tree()
        self.assertEqual(self.install(*USERSPACE).returncode, 0)
        manifest = (self.root / "var/lib/nvidia/log").read_text()
        self.assertTrue(manifest.startswith("570.86.11\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n1: /"))
        self.assertIn("0: /usr/lib/x86_64-linux-gnu/libcuda.so.1\nlibcuda.so.570.86.11\n", manifest)
        self.assertEqual((self.root / "var/lib/nvidia/log").stat().st_mode & 0o777, 0o600)
        self.assertEqual(os.readlink(self.root / LIB / "libcuda.so"), "libcuda.so.1")
        header = subprocess.run(["readelf", "-d", self.root / LIB / "libcuda.so.1"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("soname: [libcuda.so.1]", header)
        self.assertIn("version: 570.86.11", self.install("--driver-info").stdout)
        self.assertEqual(self.uninstall().returncode, 0)
        after = self.tree()
        after.pop("var/lib", None)
        self.assertEqual(before, after)

    def test_what_was_there_comes_back(self):
        self.put(f"{LIB}/libcuda.so.570.86.11", "somebody's\n")
        (self.root / LIB / "libcuda.so.1").symlink_to("libcuda.so.470")
        self.assertEqual(self.install(*USERSPACE).returncode, 0)
        self.assertEqual(self.uninstall().returncode, 0)
        self.assertEqual((self.root / LIB / "libcuda.so.570.86.11").read_text(), "somebody's\n")
        self.assertEqual(os.readlink(self.root / LIB / "libcuda.so.1"), "libcuda.so.470")

    def test_changed_files_stay(self):
        self.install(*USERSPACE)
        self.put("usr/bin/nvidia-modprobe", "patched\n")
        done = self.uninstall()
        self.assertEqual(done.returncode, 0)
        self.assertIn("has been altered since it was initially installed", done.stdout)
        self.assertIn("/usr/bin/nvidia-modprobe will not be uninstalled", self.log("nvidia-uninstall"))
        self.assertEqual((self.root / "usr/bin/nvidia-modprobe").read_text(), "patched\n")
        self.assertFalse(self.has("usr/bin/nvidia-smi"))

    def test_the_older_goes_before_the_new_one_comes(self):
        self.install(*USERSPACE)
        self.put("usr/src/nvidia-570.148.11", "a file where a folder has to be")
        done = self.install("--silent", "--no-kernel-modules", which=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Installation has failed.", done.stdout)
        self.assertTrue((self.root / "var/log/nvidia-uninstall.log").is_file())
        self.assertFalse(self.has(f"{LIB}/libcuda.so.570.86.11"))
        (self.root / "usr/src/nvidia-570.148.11").unlink()
        self.assertEqual(self.install(*USERSPACE, which=1).returncode, 0)
        self.assertEqual(os.readlink(self.root / LIB / "libcuda.so.1"), "libcuda.so.570.148.11")

    def test_source_is_left_out_only_when_told(self):
        self.install("--silent", "--no-kernel-modules")
        self.assertTrue(self.has("usr/src/nvidia-570.86.11/Kbuild"))
        self.uninstall()
        self.assertFalse(self.has("usr/src/nvidia-570.86.11"))

    def test_uninstall_of_nothing_and_of_a_touched_log(self):
        self.install(*USERSPACE)
        (self.root / "var/lib/nvidia/log").chmod(0o644)
        self.assertEqual(self.uninstall().returncode, 1)
        self.assertTrue(self.has("usr/bin/nvidia-smi"))
        (self.root / "var/lib/nvidia/log").chmod(0o600)
        self.assertEqual(self.uninstall().returncode, 0)
        self.assertEqual(self.install("--uninstall").returncode, 1)


if __name__ == "__main__":
    unittest.main()
