#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Debian package: its contents, the units that it enables, a removal without traces and only after p2pd's changes are undone;
the refusals of packaging/install; the fact of Ansible.

The package is made of the build in P2PD_BUILD and installed into an empty tree, by dpkg without chroot.
"""
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
PACKAGING = ROOT / "packaging"
BUILD = pathlib.Path(os.environ.get("P2PD_BUILD", ROOT / "build/dev"))
RULES = (PACKAGING / "debian/rules").read_text()
UNITS = sorted(p for p in (ROOT / "units").iterdir() if p.suffix in {".service", ".socket", ".timer", ".path", ".target"} and p.name[:4] == "p2pd")
# files of the tree, not of the package: records of dpkg and systemd, and copies of the tables of users
NOT_OURS = re.compile(r"var/lib/dpkg|var/log|etc/(passwd|group|shadow|gshadow)-?$|etc/\.pwd\.lock|var/lib/systemd(/|$)|etc/systemd(/system)?$")
ANSWERS = {"DEBEMAIL": "who@builds.example", "DEBFULLNAME": "Who & Builds"}  # for the package


def run(*argv, **more):
    return subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


class Rules(unittest.TestCase):
    def test_enabled_units_are_those_of_the_preset(self):
        preset = set(re.findall(r"(?m)^enable (\S+)$", (ROOT / "units/p2pd.preset").read_text()))
        self.assertEqual({u.name for u in UNITS if "[Install]" in u.read_text()}, preset)

    def test_every_unit_is_dealt_with_once(self):
        named = re.findall(r"p2pd[\w-]*\.(?:service|socket|timer|path|target)", RULES[RULES.index("override_dh_installsystemd"):])
        self.assertEqual(sorted(named), [u.name for u in UNITS])

    def test_an_upgrade_leaves_worker_and_job_alone(self):
        calls = re.findall(r"dh_installsystemd (.*(?:\\\n.*)?)", RULES)
        restarted = [c for c in calls if "--no-restart-after-upgrade --no-stop-on-upgrade" not in c]
        self.assertEqual(restarted, ["--no-start --restart-after-upgrade p2pd.service"])
        scripts = "".join(p.read_text() for p in PACKAGING.glob("debian/p2pd.p*"))
        self.assertNotIn("p2pd-job", scripts)

    def test_nothing_but_the_socket_is_started(self):
        started = [c for c in re.findall(r"dh_installsystemd (.*)", RULES) if "--no-start" not in c]
        self.assertEqual([c.split()[-1] for c in started], ["p2pd-worker.socket"])

    def test_version(self):
        version = re.search(r"project\(p2pd VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        changelog = (PACKAGING / "debian/changelog").read_text()
        self.assertTrue(changelog.startswith(f"p2pd ({version})"))
        self.assertEqual(yaml.safe_load((PACKAGING / "ansible/galaxy.yml").read_text())["version"], version)
        for entry in re.findall(r"(?m)^p2pd \(.*", (PACKAGING / "debian/NEWS").read_text()):
            self.assertIn(f"\n{entry}\n", f"\n{changelog}")


class Package(unittest.TestCase):
    """One package for all cases: its build takes long."""

    @classmethod
    def setUpClass(cls):
        if not all(map(shutil.which, ("dh", "lintian", "dpkg-buildpackage"))):
            raise unittest.SkipTest("packaging/deps install test package: debhelper or lintian is missing")
        if not (BUILD / "bin/p2pctl").exists():
            raise unittest.SkipTest(f"nothing is built in {BUILD}")
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        made = run(PACKAGING / "deb", "--build", BUILD, cls.work, env=os.environ | ANSWERS)
        assert made.returncode == 0, made.stdout
        cls.deb = pathlib.Path(made.stdout.strip().splitlines()[-1])

    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
            (self.tree / folder).mkdir(parents=True)
        (self.tree / "var/lib/dpkg/status").touch()

    def dpkg(self, *arguments):
        return run("dpkg", f"--root={self.tree}", "--force-script-chrootless", "--force-not-root", "--force-depends", *arguments)

    def must(self, *arguments):
        done = self.dpkg(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout)

    def files(self):
        found = (p.relative_to(self.tree).as_posix() for p in self.tree.rglob("*"))
        return {f for f in found if not NOT_OURS.search(f)}

    def test_lintian(self):
        # without optimisation, programs keep unused code: only a release build shows which of them reads dpkg's files
        debug = "CMAKE_BUILD_TYPE:STRING=Debug" in (BUILD / "CMakeCache.txt").read_text()
        besides = ["--suppress-tags", "uses-dpkg-database-directly"] if debug else []
        done = run("lintian", "--allow-root", *besides, *self.work.glob("*.changes"))
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_maintainer(self):
        """The maintainer is the person who builds the package; by default nobody, at an address that is visibly invalid."""
        self.assertEqual(run("dpkg-deb", "-f", self.deb, "Maintainer").stdout, "Who & Builds <who@builds.example>\n")
        self.assertRegex((PACKAGING / "debian/control").read_text(), r"(?m)^Maintainer: .*@[\w.]+\.invalid>$")

    def test_report_of_reportbug(self):
        """Versions and the verdict on a record of this machine, without its name and path."""
        self.must("-i", self.deb)
        report = self.tree / "report"
        done = run("sh", "-c", 'exec "$1" 3>"$2"', "sh", self.tree / "usr/share/bug/p2pd", report, env={"PATH": f"{BUILD}/bin:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("p2pctl record", done.stdout)
        text = report.read_text()
        self.assertRegex(text, r"\Ap2pctl [\d.]+\nLinux ")
        self.assertRegex(text, r"(?m)^P2P: ")
        for word in (os.uname().nodename, "/tmp/"):
            self.assertNotIn(word, text)

    def test_what_it_needs(self):
        needs = {word.split()[0] for word in run("dpkg-deb", "-f", self.deb, "Depends").stdout.split(",")}
        for other in ("yaml-cpp", "fmt", "spdlog"):  # their versions differ from system to system
            self.assertFalse([n for n in needs if other in n], needs)
        self.assertFalse(needs & {"dkms", "gcc", "g++", "make", "git", "grub-common", "grub-pc"}, "installing p2pd brings none of these")

    def test_what_it_needs_is_on_each_system(self):
        """A build on a system whose C library is too new, or that takes a library of another name, would not install on the others."""
        needs = run("dpkg-deb", "-f", self.deb, "Depends").stdout.split(",")
        for system, has in yaml.safe_load((ROOT / "tests/unit/package_targets.yaml").read_text()).items():
            for name, least in re.findall(r"([\w.+-]+)(?: \(>= (\S+)\))?", "\n".join(needs)):
                with self.subTest(system, needs=name):
                    self.assertIn(name, has)
                    self.assertEqual(run("dpkg", "--compare-versions", has[name], "ge", least or "0").returncode, 0, f"{has[name]} < {least}")

    def test_configuration(self):
        listed = run("dpkg-deb", "-I", self.deb, "conffiles").stdout.split()
        self.assertEqual(listed, ["/etc/needrestart/conf.d/p2pd.conf", "/etc/p2pd/catalogue.d/README", "/etc/p2pd/p2pd.yaml",
                                  "/etc/p2pd/plans/README"])

    def test_install_and_purge(self):
        before = self.files()
        self.must("-i", self.deb)
        wants = {p.name for p in self.tree.glob("etc/systemd/system/*.wants/*")}
        self.assertEqual(wants, {u.name for u in UNITS if "[Install]" in u.read_text()})
        self.assertEqual((self.tree / "etc/p2pd/p2pd.yaml").read_bytes(), (ROOT / "config/p2pd.yaml").read_bytes())
        for file in (ROOT / "config").rglob("*.yaml"):
            self.assertEqual((self.tree / "usr/lib/p2pd" / file.relative_to(ROOT / "config")).read_bytes(), file.read_bytes())
        state = self.tree / "var/lib/p2pd"
        state.mkdir(parents=True, exist_ok=True)
        (state / "state.db").touch()
        (self.tree / "etc/p2pd/catalogue.d/mine.yaml").touch()
        self.must("--purge", "p2pd")
        self.assertEqual({f for f in self.files() - before if "p2pd" in f}, set())

    def test_an_open_run_is_not_continued_after_a_removal(self):
        """A file tells the worker; an upgrade makes none."""
        self.must("-i", self.deb)
        state = self.tree / "var/lib/p2pd"
        state.mkdir(parents=True, exist_ok=True)
        self.must("--remove", "p2pd")
        self.must("-i", self.deb)
        self.assertEqual(list(state.iterdir()), [])
        (state / "state.db").touch()
        self.must("-i", self.deb)
        self.assertFalse((state / "installed-again").exists())
        self.must("--remove", "p2pd")
        self.assertFalse((state / "installed-again").exists())
        self.must("-i", self.deb)
        self.assertTrue((state / "installed-again").exists())
        self.assertIn('"/installed-again"', (ROOT / "daemon/engine/open_state.cpp").read_text())

    def test_goes_last(self):
        self.must("-i", self.deb)
        undo = self.tree / "var/lib/p2pd/undo"
        undo.mkdir(parents=True)
        (undo / "000001.json").write_text("{}")
        for verb in ("--remove", "--purge"):
            done = self.dpkg(verb, "p2pd")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("p2pctl revert", done.stdout)
            self.assertTrue((self.tree / "usr/bin/p2pctl").exists())
        self.must("-i", self.deb)  # an upgrade needs no undo
        shutil.rmtree(undo)
        self.must("--purge", "p2pd")
        self.assertFalse((self.tree / "var/lib/p2pd").exists())


# programs that prerm calls; each call is a line of `calls`. FOLDER has active, the running units, and at-stop, what a worker does last
CALLED = {
    "systemctl": """case $3 in --value) unit=$4 ;; esac; grep -qx "$unit" "$FOLDER/active" && echo running || echo dead""",
    "deb-systemd-invoke": """echo "$@" >> "$FOLDER/calls"; [ "$1" != stop ] || [ ! -e "$FOLDER/at-stop" ] || . "$FOLDER/at-stop" """,
    "p2pctl": """echo "p2pctl $*" >> "$FOLDER/calls"; [ "$1" = status ] || exit 0; echo "{"; echo "  \\"state\\": \\"$(cat "$FOLDER/state")\\""; echo "}" """,
}
BOOTED = """set -e
mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir -p /run/systemd/system /var/lib/p2pd/undo && touch /var/lib/p2pd/lock
. "$FOLDER/before"
sh "$1" remove"""


class Removal(unittest.TestCase):
    """prerm on a machine that is booted, in a mount namespace of its own."""

    def remove(self, state="idle", before="", at_stop=None, active=("p2pd-worker.socket",)):
        """Returns the exit status of the script, its output, and its calls."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        for name, script in CALLED.items():
            (place / name).write_text(f"#!/bin/sh\n{script}\n")
            (place / name).chmod(0o755)
        for name, text in {"state": state, "before": before, "at-stop": at_stop, "active": "\n".join(active), "calls": ""}.items():
            if text is not None:
                (place / name).write_text(text)
        space = ["unshare", "--mount", "--map-root-user"]
        if run(*space, "mount", "-t", "tmpfs", "none", "/run").returncode != 0:
            self.skipTest("no mount namespaces")
        done = run(*space, "sh", "-c", BOOTED, "sh", PACKAGING / "debian/p2pd.prerm",
                   env={"PATH": f"{place}:/usr/sbin:/usr/bin:/sbin:/bin", "FOLDER": folder.name})
        return done.returncode, done.stdout, (place / "calls").read_text().splitlines()

    def test_nothing_is_left(self):
        status, said, calls = self.remove()
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(calls[:2], ["stop p2pd-worker.socket", "p2pctl status --no-dbus --json"])
        self.assertRegex(calls[2], "^stop .*p2pd-prove.timer")
        self.assertEqual(len(calls), 3)

    def test_a_change_as_the_worker_stops(self):
        units = ("p2pd-worker.socket", "p2pd-worker.service")
        status, said, calls = self.remove("walking", at_stop="touch /var/lib/p2pd/undo/000001.json", active=units)
        self.assertEqual(status, 1)
        self.assertIn("p2pctl revert", said)
        self.assertEqual(calls, ["stop " + " ".join(units), *(f"start {unit}" for unit in units)])

    def test_an_open_run_without_changes_is_cancelled(self):
        for state in ("walking", "rebooting", "blocked", "paused"):
            status, said, calls = self.remove(state)
            self.assertEqual((status, said), (0, "p2pd: cancels its open run, which has changed nothing\n"))
            self.assertEqual(calls[2], "p2pctl cancel --yes --no-dbus --no-reboot")

    def test_an_ended_run_is_not_cancelled(self):
        for state in ("idle", "ready", "limited", "failed", "reverting"):
            self.assertNotIn("cancel", "".join(self.remove(state)[2]))

    def test_a_process_that_works_without_the_service(self):
        status, said, calls = self.remove(before="""flock /var/lib/p2pd/lock sleep 1 & sleep 0.2; PATH="$FOLDER/short:$PATH"
mkdir "$FOLDER/short"; printf '#!/bin/sh\\nshift 2; exec /usr/bin/flock --wait 0.1 "$@"' > "$FOLDER/short/flock"; chmod +x "$FOLDER/short/flock" """)
        self.assertEqual(status, 1)
        self.assertIn("another process of p2pd works on this machine", said)
        self.assertEqual(calls, ["stop p2pd-worker.socket", "start p2pd-worker.socket"])

    def test_an_upgrade_stops_and_cancels_nothing(self):
        done = run("/bin/sh", PACKAGING / "debian/p2pd.prerm", "upgrade", "0.2.0", env={"PATH": "/nonexistent"})
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_a_downgrade_to_0_1_leaves_no_link_of_a_unit_that_it_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            helper = pathlib.Path(folder) / "deb-systemd-helper"
            helper.write_text('#!/bin/sh\necho "$@" >&2\n')
            helper.chmod(0o755)
            done = run("/bin/sh", PACKAGING / "debian/p2pd.prerm", "upgrade", "0.1.0", env={"PATH": folder, "DPKG_ROOT": folder})
        ours = {unit.name for unit in UNITS if "[Install]" in unit.read_text()} - {"p2pd-features.timer", "p2pd-metrics.path", "p2pd-prove.timer"}
        self.assertEqual((done.returncode, set(done.stdout.split("\n"))), (0, {"", *(f"purge {unit}" for unit in ours)}))


class Images(unittest.TestCase):
    def schema(self, name):
        return json.loads((ROOT / f"config/schema/{name}.schema.json").read_text())

    def test_configurations(self):
        told = yaml.safe_load((PACKAGING / "images/user-data.yaml").read_text())
        written = [yaml.safe_load(f["content"]) for f in told["write_files"] if f["path"] == "/etc/p2pd/p2pd.yaml"]
        for config in [*written, yaml.safe_load((PACKAGING / "images/mkosi/mkosi.extra/etc/p2pd/p2pd.yaml").read_text())]:
            jsonschema.validate(config, self.schema("config"))
            self.assertTrue(config["apply_on_boot"])


class Fact(unittest.TestCase):
    def fact(self, p2pctl):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "p2pctl")
            if p2pctl:
                program.write_text("#!/bin/sh\n" + p2pctl)
                program.chmod(0o755)
            return json.loads(run(PACKAGING / "p2pd.fact", env={"PATH": folder}).stdout)

    def test_ready(self):
        told = self.fact("""[ "$1" = is-ready ] || printf '{\\n  "reboots": 1,\\n  "schema": "p2pd.status/1",\\n  "state": "ready"\\n}\\n'""")
        self.assertEqual(told, {"ready": True, "reboots": 1, "schema": "p2pd.status/1", "state": "ready"})

    def test_blocked(self):
        told = self.fact("""[ "$1" = is-ready ] && exit 3; echo '{"schema": "p2pd.status/1", "state": "blocked"}'; exit 4""")
        self.assertEqual((told["ready"], told["state"]), (False, "blocked"))

    def test_no_answer(self):
        for p2pctl in (None, "exit 1", "echo Segmentation fault; exit 139", """echo '{"error": "denied"}'; exit 1"""):
            told = self.fact(p2pctl and f'[ "$1" = is-ready ] && exit 3; {p2pctl}')
            self.assertEqual((told["ready"], told["state"]), (False, "unknown"))


class Install(unittest.TestCase):
    """packaging/install reports errors before it changes anything."""

    def install(self, *arguments, release="ID=debian\nVERSION_ID=12\n", tools="", user=None):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            pathlib.Path(folder, "os-release").write_text(release)
            for name, script in {"id": "echo 0", "apt-get": "exit 99", "cmake": "exit 99", **dict(tools or {})}.items():
                pathlib.Path(folder, name).write_text(f"#!/bin/sh\n{script}\n")
                pathlib.Path(folder, name).chmod(0o755)
            done = run(PACKAGING / "install", *arguments,
                       env={"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin", "P2PD_OS_RELEASE": f"{folder}/os-release"})
            return done.returncode, done.stdout.strip()

    def test_no_root(self):
        self.assertEqual(self.install(tools={"id": "echo 1000"}), (1, "install: must be root: sudo packaging/install"))

    def test_other_systems(self):
        self.assertEqual(self.install(release="ID=fedora\nVERSION_ID=40\n"),
                         (1, "install: this is fedora 40; p2pd is for Debian 12 and 13, Ubuntu 22.04 and 24.04"))
        self.assertEqual(self.install(tools={"uname": "echo aarch64"}), (1, "install: this is aarch64; p2pd is for x86_64"))

    def test_no_room(self):
        status, said = self.install(tools={"df": "echo Avail; echo 12M"})
        self.assertEqual(status, 1)
        self.assertRegex(said, r"^install: \S+ has 12 MB free, \d+ are needed$")

    def test_words(self):
        self.assertEqual(self.install("--aply")[0], 2)
        self.assertEqual(self.install("--apply", "now")[0], 2)
        self.assertIn("--uninstall", self.install("--help")[1])

    def test_uninstall(self):
        gone = {"p2pctl": "echo reverting; exit 4"}
        self.assertEqual(self.install("--uninstall", tools=gone)[0], 4)


if __name__ == "__main__":
    unittest.main()
