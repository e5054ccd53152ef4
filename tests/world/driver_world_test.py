#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The driver world of the tests is as described: archives that apt resolves, branches, pins that p2pd accepts.

P2PD_BUILD names the build directory whose bin/p2pctl is asked; default: build/dev.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORLD = ROOT / "tests/sim/driver_world"
P2PCTL = pathlib.Path(os.environ.get("P2PD_BUILD") or ROOT / "build/dev") / "bin/p2pctl"
VERSIONS = ["570.86.11", "570.148.11"]
OLD, NEW, NEXT_BRANCH = "570.123.11", "570.133.11", "595.123.11"
SPARED = ["cuda-toolkit-12-8", "libcudnn9-cuda-12", "libnvidia-container1", "nsight-compute", "nvidia-container-toolkit"]
# packages of a Debian 12 or Ubuntu archive that the made packages need
THERE = {"dkms": "3.2.2", "libc6": "2.36", "pciutils": "3.9", "adduser": "3.1", "dpkg": "1.21.22", "init-system-helpers": "1.65"}


def run(*argv, **options):
    return subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, timeout=300, **options)


def make(out, *words):
    done = run(WORLD / "make", out, *words)
    if done.returncode != 0:
        raise AssertionError(done.stdout)


def digests(folder):
    return {str(path.relative_to(folder)): (oct(path.stat().st_mode), hashlib.sha256(path.read_bytes()).hexdigest())
            for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path)}


def stanzas(text):
    """The paragraphs of a Packages file as dictionaries."""
    return [dict(line.split(": ", 1) for line in paragraph.splitlines()) for paragraph in text.split("\n\n") if paragraph.strip()]


def setUpModule():
    global FOLDER, OUT
    FOLDER = tempfile.TemporaryDirectory(prefix="p2pd-driver-world.")
    OUT = pathlib.Path(FOLDER.name, "world")
    make(OUT)


def tearDownModule():
    FOLDER.cleanup()


class Made(unittest.TestCase):
    def test_the_same_again(self):
        again = pathlib.Path(FOLDER.name, "again")
        make(again, "--seen-at", OUT)
        self.assertEqual(digests(OUT), digests(again))
        heads = [run("git", "-C", place / "git/open-gpu-kernel-modules.git", "for-each-ref").stdout for place in (OUT, again)]
        self.assertEqual(*heads)

    def test_not_over_something(self):
        done = run(WORLD / "make", OUT)
        self.assertEqual((done.returncode, "is not empty" in done.stdout), (1, True), done.stdout)

    def test_other_libraries(self):
        out, names = pathlib.Path(FOLDER.name, "others"), {"libcuda": "libcuda1", "libnvidia-ml": "libnvidia-ml1"}
        files = {name: pathlib.Path(FOLDER.name, name) for name in names}
        for name, file in files.items():
            file.write_bytes(b"\x7fELF of somebody: " + name.encode())
        make(out, "--version", "570.86.11", *(word for name, file in files.items() for word in (f"--{name}", file)))
        runfile = out / "http/XFree86/Linux-x86_64/570.86.11/NVIDIA-Linux-x86_64-570.86.11.run"
        self.assertEqual(run("sh", runfile, "--extract-only", "--target", out / "r").returncode, 0)
        for name, package in names.items():
            run("dpkg-deb", "-x", next((out / "apt/debian/pool").rglob(f"{package}_{OLD}*.deb")), out / "x")
            found = out / f"x/usr/lib/x86_64-linux-gnu/nvidia/current/{name}.so.{OLD}"
            self.assertEqual(found.read_bytes(), files[name].read_bytes())
            self.assertEqual((out / f"r/{name}.so.570.86.11").read_bytes(), files[name].read_bytes())
        self.assertEqual(run("git", "-C", out / "git/open-gpu-kernel-modules.git", "branch", "--format=%(refname:lstrip=2)").stdout.split(),
                         [version + ending for version in (OLD, NEW, "570.86.11", NEXT_BRANCH) for ending in ("", "-p2p", "-p2p-asks", "-p2p-fails-late", "-p2p-moved")])


class Archives(unittest.TestCase):
    def lists(self):
        return sorted((OUT / "apt").rglob("Packages"))

    def test_packages_are_what_the_lists_say(self):
        count = 0
        for path in self.lists():
            base = path.parent if path.parent.name == "cuda" else path.parents[4]
            for row in stanzas(path.read_text()):
                deb = base / row["Filename"]
                self.assertEqual(row["SHA256"], hashlib.sha256(deb.read_bytes()).hexdigest(), deb)
                self.assertEqual(run("dpkg-deb", "-f", deb, "Package", "Version").stdout,
                                 f"Package: {row['Package']}\nVersion: {row['Version']}\n")
                count += 1
        self.assertGreater(count, 150)

    def test_names_versions_and_relations(self):
        debian = {(row["Package"], row["Version"]): row for path in (OUT / "apt/debian/dists/bookworm").rglob("Packages")
                  for row in stanzas(path.read_text())}
        for name in ("nvidia-driver", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "nvidia-alternative", "nvidia-persistenced",
                     "nvidia-settings", "xserver-xorg-video-nvidia", "firmware-nvidia-gsp", "nvidia-modprobe"):
            self.assertEqual(sorted(v for n, v in debian if n == name), [f"{OLD}-1", f"{NEW}-1"], name)
        driver = debian["nvidia-driver", f"{NEW}-1"]
        self.assertIn(f"nvidia-open-kernel-{NEW}", driver["Depends"])
        self.assertIn(f"nvidia-open-kernel-{NEW}", debian["nvidia-kernel-open-dkms", f"{NEW}-1"]["Provides"])
        self.assertIn("libcuda.so.1 (= ", debian["libcuda1", f"{NEW}-1"]["Provides"])
        self.assertEqual(debian["glx-alternative-nvidia", "1.2.2"]["Source"], "glx-alternatives")
        self.assertEqual(debian["libglx-nvidia0", f"{NEW}-1"]["Source"], "nvidia-graphics-drivers")
        jammy = {row["Package"]: row for row in stanzas(next((OUT / "apt/ubuntu/dists/jammy/restricted").rglob("Packages")).read_text())}
        for name in ("nvidia-dkms-570-open", "linux-modules-nvidia-570-open-5.15.0-140-generic", "libnvidia-compute-570"):
            self.assertIn(name, jammy)
        self.assertIn("libnvidia-compute", jammy["libnvidia-compute-570"]["Conflicts"])

    def test_what_debian_13_has_otherwise(self):
        trixie = {(row["Package"], row["Version"]): row for path in (OUT / "apt/debian/dists/trixie").rglob("Packages")
                  for row in stanzas(path.read_text())}
        self.assertIn("dkms (>= 3.0.11)", trixie["nvidia-open-kernel-dkms", f"{NEW}-2"]["Depends"])
        self.assertIn(f"libnvidia-gpucomp (= {NEW}-2)", trixie["libnvidia-glcore", f"{NEW}-2"]["Depends"])
        self.assertEqual([v for n, v in trixie if n == "nvidia-modprobe"], ["570.144-1"])
        self.assertEqual(sorted(v for n, v in trixie if n == "nvidia-persistenced"), [f"{OLD}-1", f"{NEW}-1"])
        for deb in (OUT / "apt/debian/pool/trixie").rglob("*.deb"):
            self.assertNotRegex(run("dpkg-deb", "-c", deb).stdout, r" \./lib/", deb)

    def test_prebuilt_modules_need_the_driver_of_their_version(self):
        noble = {(row["Package"], row["Version"]): row for row in stanzas(next((OUT / "apt/ubuntu/dists/noble/restricted").rglob("Packages")).read_text())}
        kernel, series = "6.14.0-24-generic", "linux-modules-nvidia-570-open-generic-hwe-24.04"
        for version, driver in (("6.14.0-24.24~24.04.3", OLD), ("6.14.0-24.24~24.04.3+1", OLD), ("6.14.0-24.24~24.04.3+2", NEW)):
            for name in (series, f"linux-modules-nvidia-570-open-{kernel}"):
                self.assertIn(f"nvidia-kernel-common-570 (<= {driver}-1), nvidia-kernel-common-570 (>= {driver})", noble[name, version]["Depends"])
            self.assertIn(f"nvidia-dkms-570-open (= {driver}-", noble[series, version]["Provides"])
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"linux-objects-nvidia-570-open-{kernel}", f"linux-signatures-nvidia-{kernel}"):
                run("dpkg-deb", "-x", next((OUT / "apt/ubuntu/pool/noble").rglob(f"{name}_*3_amd64.deb")), folder)
            bits = pathlib.Path(folder, f"lib/modules/{kernel}/kernel/nvidia-570-open/bits")
            self.assertEqual(len(list(bits.glob("*.o"))), len(list(bits.glob("*.ko.sig"))), 5)
            module = bits / "nvidia.ko"
            module.write_bytes((bits / "nvidia.o").read_bytes() + (bits / "nvidia.ko.sig").read_bytes())
            self.assertIn(f"version:        {OLD}\n", run("/sbin/modinfo", module).stdout)
            self.assertTrue(module.read_bytes().endswith(b"~Module signature appended~\n"))

    def test_what_patterns_of_guides_do(self):
        names = {row["Package"] for path in self.lists() if "ubuntu" not in str(path) for row in stanzas(path.read_text())}
        taken = {name for name in names if re.match("^nvidia-.*", name)}
        self.assertIn("nvidia-container-toolkit", taken)
        for missed in ("libcuda1", "libnvidia-ml1", "glx-alternative-nvidia", "firmware-nvidia-gsp", "xserver-xorg-video-nvidia"):
            self.assertIn(missed, names - taken)
        for spared in SPARED:
            self.assertIn(spared, names)

    def test_conffiles_and_scripts(self):
        deb = next((OUT / "apt/debian/pool").rglob(f"nvidia-open-kernel-support_{NEW}*.deb"))
        self.assertIn("/etc/nvidia/current-open/nvidia-modprobe.conf\n", run("dpkg-deb", "-I", deb, "conffiles").stdout)
        for path in (OUT / "apt").rglob("*.deb"):
            with tempfile.TemporaryDirectory() as folder:
                run("dpkg-deb", "-e", path, folder)
                for script in pathlib.Path(folder).glob("p*"):
                    self.assertEqual(run("sh", "-n", script).returncode, 0, f"{path} {script.name}")
                    self.assertNotIn("@", re.sub(r"\S+@\S+\.\S+|\"\$@\"", "", script.read_text()), f"{path} {script.name}")


class Apt(unittest.TestCase):
    """The real apt on a made dpkg status, simulation only."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-apt.", dir=FOLDER.name))
        for name in ("etc/apt", "state/lists/partial", "cache/archives/partial"):
            (self.root / name).mkdir(parents=True)
        status = "\n".join(f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nArchitecture: amd64\n"
                           "Maintainer: nobody\nDescription: there\n" for name, version in THERE.items())
        (self.root / "status").write_text(status)

    def apt(self, *words):
        keys = {"Dir::Etc": self.root / "etc/apt", "Dir::State": self.root / "state", "Dir::Cache": self.root / "cache", "Debug::NoLocking": 1,
                "Dir::State::status": self.root / "status", "APT::Architecture": "amd64", "APT::Architectures": "amd64", "APT::Sandbox::User": ""}
        done = run("apt-get", *(f"-o{key}={value}" for key, value in keys.items()), "-q", *words, env={**os.environ, "LC_ALL": "C"})
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def known(self, *lines):
        (self.root / "etc/apt/sources.list").write_text("".join(f"deb [trusted=yes] file://{OUT}/apt/{line}\n" for line in lines))
        self.apt("update")

    def test_debian_installs_the_newest_of_two(self):
        self.known("debian bookworm contrib non-free non-free-firmware", "cuda ./")
        told = self.apt("-s", "install", "nvidia-driver", *SPARED)
        for name in ("nvidia-kernel-open-dkms", "libnvidia-ml1", "glx-diversions", "nvidia-persistenced"):
            self.assertRegex(told, rf"(?m)^Inst {name} \(")
        self.assertIn(f"Inst nvidia-driver ({NEW}-1", told)
        self.assertIn(f"Inst libcuda1 ({OLD}-1", self.apt("-s", "install", f"libcuda1={OLD}-1", f"nvidia-alternative={OLD}-1",
                                                         f"libnvidia-ptxjitcompiler1={OLD}-1", f"libnvidia-ml1={OLD}-1"))

    def test_debian_13_installs(self):
        self.known("debian trixie contrib non-free non-free-firmware")
        self.assertIn(f"Inst nvidia-open-kernel-dkms ({NEW}-2", self.apt("-s", "install", "nvidia-driver", "nvidia-open-kernel-dkms"))

    def test_ubuntu_installs_prebuilt_modules_instead_of_dkms(self):
        self.known("ubuntu noble main restricted")
        text = "".join(f"\nPackage: linux-image-{kernel}\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody\n"
                       "Description: there\n" for kernel in ("6.14.0-24-generic", "6.17.0-8-generic"))
        with (self.root / "status").open("a") as status:
            status.write(text)
        told = self.apt("-s", "install", "nvidia-driver-570-open", "linux-modules-nvidia-570-open-generic-hwe-24.04")
        self.assertIn("Inst linux-modules-nvidia-570-open-6.17.0-8-generic (6.17.0-8.8~24.04.3+2", told)
        self.assertNotIn("Inst nvidia-dkms-570-open", told)

    def test_ubuntu_installs(self):
        for codename in ("jammy", "noble"):
            self.known(f"ubuntu {codename} main restricted")
            told = self.apt("-s", "install", "nvidia-driver-570-open")
            self.assertRegex(told, rf"(?m)^Inst nvidia-dkms-570-open \({NEW}-")


class Source(unittest.TestCase):
    bare = property(lambda _: OUT / "git/open-gpu-kernel-modules.git")

    def git(self, *words):
        return run("git", "-c", f"safe.directory={self.bare}", "-C", self.bare, *words)

    def pin(self, name, version="570.148.11"):
        rows = yaml.safe_load((OUT / f"catalogue/{name}.yaml").read_text())["patches"]
        return next(row for row in rows.values() if row["base"] == version)

    def test_what_the_fork_changes(self):
        for version in VERSIONS:
            changed = self.git("diff", "--name-only", f"refs/tags/{version}", f"{version}-p2p").stdout.split()
            self.assertEqual(changed, ["kernel-open/nvidia/nv-pci.c", "src/nvidia/src/bar1_p2p.c"])
            self.assertIn(f"NVIDIA_VERSION = {version}", self.git("show", f"{version}-p2p:version.mk").stdout)
            self.assertIn("pci_resize_resource(dev, NV_BAR1, size);", self.git("show", f"{version}-p2p:kernel-open/nvidia/nv-pci.c").stdout)

    def test_pins(self):
        for name, there in (("driver-world", True), ("keep", True), ("branches", True), ("asks", True), ("fails-late", True), ("moved", False)):
            row = self.pin(name)
            self.assertEqual(self.git("cat-file", "-e", row["commit"]).returncode == 0, there, name)
            head = self.git("rev-parse", row["branch"]).stdout.strip()
            self.assertEqual(head == row["commit"], there, name)

    def test_releases_have_tags(self):
        releases = yaml.safe_load((OUT / "catalogue/branches.yaml").read_text())["releases"]  # has all of them
        told = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/tags").stdout.splitlines()
        self.assertEqual(sorted(told), sorted(f"refs/tags/{version} {row['commit']}" for version, row in releases.items()))

    def test_no_build_without_headers(self):
        with tempfile.TemporaryDirectory() as folder:
            run("git", "clone", "-q", "-b", "570.86.11-p2p", self.bare, folder)
            done = run("make", "-C", folder, "modules", "-j2", "KERNEL_UNAME=0.0.0-none")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("/lib/modules/0.0.0-none/build", done.stdout)


class Catalogue(unittest.TestCase):
    def test_drop_ins_fit_the_schema_and_the_files(self):
        schema = json.loads((ROOT / "config/schema/catalogue.schema.json").read_text())
        for path in sorted((OUT / "catalogue").iterdir()):
            table = yaml.safe_load(path.read_text())
            jsonschema.validate(table, schema, jsonschema.Draft202012Validator)
            for row in table["releases"].values():
                host = table["runfile_hosts"][0].removeprefix("file://")
                runfile = pathlib.Path(host + row["runfile"]["path"])
                self.assertEqual(hashlib.sha256(runfile.read_bytes()).hexdigest(), row["runfile"]["sha256"])
                self.assertEqual(runfile.stat().st_size, row["runfile"]["bytes"])
                self.assertEqual(run("sha256sum", "-c", f"{runfile.name}.sha256sum", cwd=runfile.parent).returncode, 0)

    def machine(self, name):
        """A machine record with this drop-in."""
        machine = pathlib.Path(tempfile.mkdtemp(dir=FOLDER.name), "machine")
        shutil.copytree(P2PCTL.parents[1] / "machines/rtx4090-x2-healthy", machine, symlinks=True)
        (machine / "etc/p2pd/catalogue.d").mkdir(parents=True)
        shutil.copy(OUT / f"catalogue/{name}.yaml", machine / "etc/p2pd/catalogue.d")
        return machine

    def test_p2pd_chooses_what_was_made(self):
        plan = pathlib.Path(FOLDER.name, "plan.yaml")
        plan.write_text("name: world\ntitle: The driver\nsteps:\n  - gate: driver\n    title: A driver fits\n    check: driver-catalogue\n")
        done = run(P2PCTL, "doctor", plan, "--root", self.machine("driver-world"), "--json")
        self.assertIn("driver-world/570.148.11-p2p fits", done.stdout)

    def test_p2pd_makes_the_sources(self):
        for name, ending in (("driver-world", "-p2p"), ("asks", "-p2p-asks"), ("fails-late", "-p2p-fails-late"), ("moved", "-p2p-moved")):
            for version in VERSIONS:
                done = run(P2PCTL, "catalogue", "diff", f"driver-world/{version}{ending}", "--root", self.machine(name))
                self.assertEqual(done.returncode, 1 if name == "moved" else 0, done.stdout)
                self.assertIn("which it does not have" if name == "moved" else "+#define P2P_OVERRIDE 0x11", done.stdout)


if __name__ == "__main__":
    unittest.main()
