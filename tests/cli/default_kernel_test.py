#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The drop-in of default-kernel, sourced by this machine's own grub-mkconfig over a /boot of the test: the entry that GRUB would boot.
P2PD_BUILD: the build directory."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import write  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DROP_IN = re.search(r'kDropIn = R"sh\((.*?)\)sh"', (SOURCE / "daemon/machine/modules/default_kernel.cpp").read_text(), re.S)[1]
OLD, NEW = "6.1.0-37-amd64", "6.1.0-100-amd64"
MODULES, DKMS = pathlib.Path("/lib/modules"), pathlib.Path("/var/lib/dkms")
INSIDE = """set -e
mount --bind "$0/boot" /boot
mount --bind "$0/default" /etc/default
mount --bind "$0/modules" /lib/modules
mount --bind "$0/dkms" /var/lib/dkms
exec grub-mkconfig"""
LACKING = next((why for why, lacks in (("root, for a mount namespace", os.geteuid() != 0),
                                       ("grub-mkconfig (grub-common)", not shutil.which("grub-mkconfig")),
                                       ("/ and /var/tmp on disks that grub-probe knows", any(not shutil.which("grub-probe") or subprocess.run(
                                           ["grub-probe", "--target=device", path], capture_output=True, check=False).returncode
                                            for path in ("/", "/var/tmp")))) if lacks), None)


@unittest.skipIf(LACKING, f"SKIP: needs {LACKING}")
class DefaultEntry(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="p2pd-default-kernel-", dir="/var/tmp")  # /boot is no tmpfs
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        for folder in ("boot/grub", "modules", "dkms"):
            (self.place / folder).mkdir(parents=True)
        for folder in (MODULES, DKMS):
            if not folder.exists():
                folder.mkdir()
                self.addCleanup(folder.rmdir)
        self.settings("GRUB_DEFAULT=0\n")
        write(self.place / "default/grub.d/zz-p2pd-kernel.cfg", DROP_IN)
        for version in (OLD, NEW):
            for name in ("vmlinuz", "initrd.img", "config"):
                write(self.place / f"boot/{name}-{version}", "")

    def settings(self, text):
        write(self.place / "default/grub", text)

    def modules(self, version):
        write(self.place / f"modules/{version}/updates/dkms/nvidia.ko", "")
        write(self.place / f"dkms/p2pd-nvidia/kernel-{version}-{os.uname().machine}/module/nvidia.ko", "")

    def kernel_of_default(self):
        """The kernel of the entry that GRUB boots by default, by its own rules: an id, or the first one."""
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, str(self.place)],
                              capture_output=True, text=True, check=True)
        self.assertEqual(subprocess.run(["grub-script-check"], input=done.stdout, text=True, check=False).returncode, 0)
        default = re.findall(r'set default="([^$"]*)"', done.stdout)[-1]
        entries = dict(re.findall(r"menuentry_id_option '([^']*)' \{(?:(?!menuentry ).)*?\tlinux\t(\S*)", done.stdout, re.S))
        for level in default.split(">")[:-1]:
            self.assertIn(f"menuentry_id_option '{level}'", done.stdout)
        chosen = entries[default.split(">")[-1]] if default != "0" else next(iter(entries.values()))
        return chosen.split("vmlinuz-")[1]

    def test_story_of_an_update(self):
        self.assertEqual(self.kernel_of_default(), NEW)  # no modules anywhere: no reason to hold a kernel back
        self.modules(OLD)
        self.assertEqual(self.kernel_of_default(), OLD)
        self.settings("")
        self.assertEqual(self.kernel_of_default(), OLD)
        self.settings("GRUB_DISABLE_SUBMENU=y\n")
        self.assertEqual(self.kernel_of_default(), OLD)
        self.modules(NEW)
        self.settings("GRUB_DEFAULT=0\n")
        self.assertEqual(self.kernel_of_default(), NEW)

    def test_trial_entry_goes_before_it(self):
        self.modules(OLD)
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, str(self.place)],
                              capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r'if \[ "\$\{next_entry\}" \] ; then\n +set default="\$\{next_entry\}"')


if __name__ == "__main__":
    unittest.main()
