#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl catalogue, and its verbs diff, allow and add: on machine records, with git repositories made here and a server on the
loopback interface. P2PD_BUILD: the build directory."""
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/sim"))
from forks import BAR1, CONTEXT, NV_PCI, Repository, git, patch, release
from tree import MACHINES, differences, golden, picture, write
from web import Web, good, redirect, stall, status

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "config/schema/catalogue.schema.json").read_text()))
SHIPPED = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text())
KERNELS = yaml.safe_load((ROOT / "config/kernel-table.yaml").read_text())["releases"]
# nobody listens on port 1: no test reaches the hosts of the catalogue
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("GIT_")},
               "https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}
DROP_INS = "etc/p2pd/catalogue.d"
VERSION, NEXT = "580.95.05", "580.96.01"
BRANCH = VERSION + "-p2p"
SUM = "ab" * 32


def numbers(version):
    return [int(part) for part in version.split(".")]


def shipped_entries():
    """Id to (version, how it is known, patch) of each build that the shipped tables make, in the order of the list."""
    order, found = ["single-source", "corroborated", "verified"], []
    for id_, row in SHIPPED["patches"].items():
        for version in (row["base"], *row.get("grafts", {})):
            made = SHIPPED["releases"][version]
            known = min((row["known"], made.get("known", row["known"]), made["runfile"]["known"]), key=order.index)
            found.append((numbers(version), id_ if version == row["base"] else f"{id_}-on-{version}", version, known, row))
    return {id_: (version, known, row) for _, id_, version, known, row in sorted(found, key=lambda one: one[:2])}


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-catalogue-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.tree = self.scratch / "tree"
        self.use("rtx4090-x2-healthy")

    def use(self, record):
        shutil.rmtree(self.tree, ignore_errors=True)
        subprocess.run(["cp", "-a", MACHINES / record, self.tree], check=True)
        self.before = picture(self.tree)

    def ctl(self, *words, env=None, stdin=subprocess.DEVNULL, text=True):
        return subprocess.run([P2PCTL, "catalogue", *map(str, words), "--root", str(self.tree)], stdin=stdin,
                              capture_output=True, text=text, timeout=120, env={**ENVIRONMENT, **(env or {})})

    def said(self, *words, **more):
        """The JSON document of a verb that succeeds."""
        done = self.ctl(*words, "--json", **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def listed(self):
        said = self.said()
        self.assertEqual(said["schema"], "p2pd.catalogue-list/2")
        return said

    def entries(self):
        return {entry["id"]: entry for entry in self.listed()["entries"]}

    def put(self, name, **tables):
        """Writes a drop-in, which fits the schema."""
        tables = {"schema": "p2pd.catalogue/2", **tables}
        SCHEMA.validate(tables)
        write(self.tree / DROP_INS / name, yaml.safe_dump(tables))
        self.before = picture(self.tree)

    def assert_unchanged(self):
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def assert_refused(self, done, pattern, next_pattern=None):
        """It fails with these words, and has changed nothing."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"(?m)^p2pctl: ")
        self.assertRegex(done.stderr, pattern)
        if next_pattern:
            self.assertRegex(done.stderr, r"(?m)^  next: .*" + next_pattern)
        self.assert_unchanged()


class List(Case):
    def test_every_entry_is_there_and_nothing_changes(self):
        said, wanted = self.listed()["entries"], shipped_entries()
        self.assertEqual([entry["id"] for entry in said], list(wanted))
        for entry, (version, known, row) in zip(said, wanted.values()):
            with self.subTest(entry["id"]):
                made = SHIPPED["releases"][version]
                self.assertEqual((entry["driver_version"], entry["known"], entry["source"]), (version, known.replace("-", " "), "catalogue.yaml"))
                self.assertEqual((entry["base_commit"], entry["commit"], entry["cuda"]), (made.get("commit"), row["commit"], made.get("cuda")))
                self.assertEqual(entry["usable"], known != "single-source")
                self.assertEqual(set(entry["architectures"]), set(row["architectures"]))
        self.assert_unchanged()

    def test_a_graft_was_seen_by_nobody(self):
        grafts = [entry for entry in self.entries().values() if "-on-" in entry["id"]]
        self.assertTrue(grafts)
        for entry in grafts:
            self.assertEqual(set(entry["architectures"].values()), {"unknown"}, entry["id"])

    def test_for_people(self):
        text, said = self.ctl().stdout, self.listed()
        self.assertRegex(text, r"\A +entry +driver +CUDA +known +GPUs +kernels\n")
        for entry in said["entries"]:
            with self.subTest(entry["id"]):
                gpus = " ".join(name + ("" if how == "reported" else "?") for name, how in entry["architectures"].items())
                row = f"{entry['id']} {entry['driver_version']} {entry['cuda'] or ''} {entry['known']} {gpus} "
                found = next((line for line in text.splitlines() if " ".join(line.split()[1:]).startswith(" ".join(row.split()))), None)
                self.assertIsNotNone(found, row)
                self.assertIn(entry["reason"], text)
        for note in said["notes"]:
            self.assertRegex(text, rf"(?m)^ note +{note[:40]}")
        self.assertIn(said["summary"], text)

    def test_kernels_are_those_of_the_table(self):
        text = self.ctl().stdout
        for entry in self.listed()["entries"]:
            with self.subTest(entry["id"]):
                kernels = KERNELS.get(entry["driver_version"], {}).get("kernels", {})
                self.assertEqual(entry["kernels"], kernels)
                line = next(line for line in text.splitlines() if f" {entry['id']} " in line)
                parts = [[], []]
                for kernel in sorted(kernels, key=numbers):
                    parts[kernels[kernel].startswith("fails")].append(kernel)
                told = ", ".join(" ".join((word, *part)) for word, part in zip(("builds", "fails"), parts) if part)
                self.assertTrue(line.endswith(told or "not tried"), line)

    def test_defects(self):
        text = self.ctl().stdout
        for entry, (_, _, row) in zip(self.listed()["entries"], shipped_entries().values()):
            told = [{"id": name, "text": SHIPPED["defects"][name]["text"], "grave": SHIPPED["defects"][name].get("grave", False)}
                    for name in row.get("defects", [])]
            self.assertEqual(entry["defects"], told, entry["id"])
            for defect in told:
                self.assertIn(f"known defect: {defect['text']}", text)

    def test_verdicts_are_the_probe_s(self):
        for record, finding in golden("driver-catalogue").items():
            facts = finding.get("facts", {})
            if not facts.get("gpus"):
                continue
            with self.subTest(record):
                self.use(record)
                said = self.listed()
                self.assertEqual((said["entry"], said["notes"]), (facts["entry"], facts["notes"]))
                if all(gpu["architecture"] for gpu in facts["gpus"]) and facts["kernels"]:
                    self.assertEqual({e["id"]: e["fit"] for e in said["entries"]}, facts["entries"])
                else:
                    self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})

    def test_no_gpu_is_no_verdict(self):
        self.use("no-gpu")
        said = self.listed()
        self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})
        self.assertRegex(said["entries"][0]["reason"], "no NVIDIA GPU")
        self.assertRegex(self.ctl().stdout, "no NVIDIA GPU")


RELEASE = {"commit": "1" * 40, "known": "verified", "runfile": {"path": f"/x/NVIDIA-Linux-x86_64-{VERSION}.run", "sha256": SUM, "known": "verified"}}
PATCH = {"repository": "file:///srv/none", "branch": "x", "commit": "2" * 40, "known": "verified", "base": VERSION, "architectures": {"Ada": "unknown"}}


class DropIns(Case):
    def test_one_is_listed_and_preferred(self):
        self.put("mine.yaml", releases={VERSION: RELEASE}, patches={"mine/x": PATCH})
        said = self.listed()
        found = next(entry for entry in said["entries"] if entry["id"] == "mine/x")
        self.assertEqual((found["usable"], found["source"]), (True, f"/{DROP_INS}/mine.yaml"))
        self.assertEqual(said["entry"], "mine/x")

    def test_what_makes_an_entry_a_candidate(self):
        changes = {"commit of its patch": {"patch": {"commit": None}}, "SHA-256 of its runfile": {"runfile": {"sha256": None}},
                   "GPU architecture": {"patch": {"architectures": {}}}, "one source alone": {"patch": {"known": "single-source"}},
                   "one source alone has its hashes": {"runfile": {"known": "single-source"}}}
        for reason, change in changes.items():
            with self.subTest(reason):
                def changed(row, key):
                    return {name: value for name, value in {**row, **change.get(key, {})}.items() if value is not None}
                release_row = {**RELEASE, "runfile": changed(RELEASE["runfile"], "runfile")}
                self.put("mine.yaml", releases={VERSION: release_row}, patches={"mine/x": changed(PATCH, "patch")})
                found = self.entries()["mine/x"]
                self.assertEqual((found["usable"], found["fit"]), (False, "candidate"))
                self.assertIn(reason, found["reason"])

    def test_one_of_another_name_is_not_read(self):
        for name in ("old.json", "mine.yaml.bak", "README"):
            write(self.tree / DROP_INS / name, "{")
        self.assertIn(f"/{DROP_INS}/old.json is not read", self.ctl().stdout)
        self.assertEqual(list(self.entries()), list(shipped_entries()))

    def test_bad_ones(self):
        old = json.dumps({"schema": "p2pd.catalogue/1", "entries": []})
        bad = ["", "{", b"\xff\xfe", "[]", "a", "schema: p2pd.catalogue/2\nschema: p2pd.catalogue/2\n", "schema: &a p2pd.catalogue/2\nreleases_at: *a\n",
               "schema: p2pd.catalogue/2\n---\n{}\n", "#" * (2 << 20), old]
        for content in bad:
            with self.subTest(content[:40]):
                write(self.tree / DROP_INS / "bad.yaml", content)
                done = self.ctl()
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, r"\Ap2pctl: .*/etc/p2pd/catalogue\.d/bad\.yaml")
        self.assertRegex(done.stderr, r"schema p2pd\.catalogue/1; .*\n  next: \"p2pctl catalogue add")

    def test_the_same_again_is_no_contradiction(self):
        id_ = "aikitoria/565.77-p2p"
        self.put("again.yaml", releases={"565.77": SHIPPED["releases"]["565.77"]}, patches={id_: SHIPPED["patches"][id_]})
        self.assertEqual(self.entries()[id_]["source"], "catalogue.yaml")
        self.assertNotIn("which counts", self.ctl().stdout)

    def test_a_row_that_an_update_ships_too(self):
        id_, defect = "aikitoria/565.77-p2p", "bar1-smaller-than-vram"
        self.put("mine.yaml", patches={id_: {**SHIPPED["patches"][id_], "known": "single-source", "reports": ["mine"]}},
                 defects={defect: {"text": "mine"}})
        self.assertEqual([self.entries()[id_][key] for key in ("source", "usable")], ["catalogue.yaml", True])
        for row in (f"patch {id_}", f"defect {defect}"):
            self.assertRegex(self.ctl().stdout, rf"note +/{DROP_INS}/mine\.yaml: {row} is in catalogue\.yaml too, which counts")

    def test_contradictions(self):
        self.put("a.yaml", releases={VERSION: RELEASE}, patches={"mine/x": PATCH})
        rule = "pci-resize-exclude-bars"
        for what, key, earlier, tables in (
                (f"release {VERSION}", "commit", f"/{DROP_INS}/a.yaml", {"releases": {VERSION: {**RELEASE, "commit": "3" * 40}}}),
                ("patch mine/x", "commit", f"/{DROP_INS}/a.yaml", {"patches": {"mine/x": {**PATCH, "commit": "3" * 40}}}),
                ("release 565.77", "commit", "catalogue.yaml", {"releases": {"565.77": {**SHIPPED["releases"]["565.77"], "commit": "3" * 40}}}),
                (f"compat rule {rule}", "pattern", "catalogue.yaml", {"compat_rules": {rule: {**SHIPPED["compat_rules"][rule], "pattern": "x"}}})):
            with self.subTest(what):
                self.put("b.yaml", **tables)
                self.assert_refused(self.ctl(), f"{DROP_INS}/b.yaml: {what}: another '{key}' than in {earlier}", "a name of its own")


class Forks(Case):
    """NVIDIA's repository with two releases, a fork with a patch on the first, and a host with their runfiles."""

    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-catalogue-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        nvidia = Repository(cls.made / "NVIDIA/open-gpu-kernel-modules")
        cls.first, cls.second = nvidia.release(VERSION), nvidia.release(NEXT, "int more;\n", annotated=True)
        cls.patched = Repository(cls.made / "my-fork", of=nvidia).commit(patch(), BRANCH, on=cls.first)

    def setUp(self):
        super().setUp()
        self.web = Web()
        self.addCleanup(self.web.close)
        shutil.copytree(self.made, self.scratch, dirs_exist_ok=True)
        self.nvidia, self.fork = Repository(self.scratch / "NVIDIA/open-gpu-kernel-modules"), Repository(self.scratch / "my-fork")
        self.base, self.next, self.head = self.first, self.second, self.patched
        self.publish("/XFree86/Linux-x86_64")

    def publish(self, tree, version=VERSION):
        name = f"NVIDIA-Linux-x86_64-{version}.run"
        self.path = f"{tree}/{version}/{name}"
        self.web.routes[self.path] = stall(bytes(4_000), 1_000)  # nobody may want more than the beginning
        self.web.routes[self.path + ".sha256sum"] = f"{SUM}  {name}\n".encode()

    def release_row(self, version, commit, changes=None):
        path = f"/XFree86/Linux-x86_64/{version}/NVIDIA-Linux-x86_64-{version}.run"
        row = {"commit": commit, "known": "verified", "runfile": {"path": path, "sha256": SUM, "bytes": 4_000, "known": "verified"}, **(changes or {})}
        return {key: value for key, value in row.items() if value is not None}

    def pin(self, release=None, **changes):
        """A drop-in with the fork's patch on the first release, and a graft on the second; a change to None leaves a key out."""
        row = {"repository": self.fork.url, "branch": BRANCH, "commit": self.head, "known": "verified", "base": VERSION,
               "grafts": {NEXT: None}, "architectures": {"Ada": "reported"}, **changes}
        self.put("pinned.yaml", releases_at=self.nvidia.url, releases={VERSION: self.release_row(VERSION, self.base, release),
                                                                       NEXT: self.release_row(NEXT, self.next)},
                 patches={"fork/x": {key: value for key, value in row.items() if value is not None}})

    def assert_only_the_sum_is_fetched(self):
        """And of the runfile one byte, which tells its size."""
        self.assertEqual(self.web.asked, [("GET", self.path + ".sha256sum", None), ("GET", self.path, "bytes=0-0")])


class Diff(Forks):
    def test_git_apply_takes_it(self):
        self.pin()
        said = self.said("diff", "fork/x")
        self.assertEqual((said["schema"], said["id"], said["base_commit"], said["commit"]), ("p2pd.catalogue-diff/1", "fork/x", self.base, self.head))
        self.assertEqual(said["left_out"], ["README.md"])
        self.assertRegex(said["stat"][-1], r"\A ?2 files changed, 2 insertions")
        text = self.ctl("diff", "fork/x", text=False).stdout
        for patched in (text, said["patch"].encode()):
            git(self.nvidia.path, "checkout", "--quiet", "--force", "--detach", self.base)
            subprocess.run(["git", "-C", self.nvidia.path, "apply", "--index"], input=patched, check=True)
            self.assertEqual(git(self.nvidia.path, "write-tree"), said["tree"])
            for name in (NV_PCI, BAR1):
                self.assertEqual((self.nvidia.path / name).read_text(), self.fork.file(self.head, name))
            self.assertEqual((self.nvidia.path / "README.md").read_text(), release(VERSION)["README.md"])
        self.assert_unchanged()
        self.assertEqual(self.web.asked, [])

    def test_what_is_known_stands_above(self):
        self.pin(reports=["somebody: two cards"], defects=["managed-memory-peers"])
        text = self.ctl("diff", "fork/x").stdout
        head = text[:text.index("diff --git")]
        for words in (f"driver +{VERSION}", rf"source +NVIDIA's {VERSION}: {self.base} \(verified\)", rf"patch .*{self.head} \(verified\)",
                      rf"runfile .*{SUM} \(verified\)", "GPUs +Ada: P2P reported", "report +somebody: two cards", "defect +cudaMallocManaged",
                      r"left out +README\.md", "tree +[0-9a-f]{40}"):
            self.assertRegex(head, rf"(?m)^# {words}")
        for line in head.splitlines():
            self.assertRegex(line, r"\A(#|$)")

    def test_a_graft(self):
        self.pin()
        self.nvidia.commit(release(NEXT), "never-asked-for")
        said = self.said("diff", f"fork/x-on-{NEXT}")
        self.assertEqual(said["base_commit"], self.next)
        git(self.nvidia.path, "checkout", "--quiet", "--force", "--detach", self.next)
        subprocess.run(["git", "-C", self.nvidia.path, "apply", "--index"], input=said["patch"].encode(), check=True)
        self.assertEqual(git(self.nvidia.path, "write-tree"), said["tree"])
        self.assertIn("int more;", (self.nvidia.path / NV_PCI).read_text())
        self.assertRegex(self.ctl("diff", f"fork/x-on-{NEXT}").stdout, f"(?m)^# graft +the patch was made for {VERSION}; p2pd puts it on {NEXT}")

    def test_a_graft_that_does_not_fit(self):
        other = self.nvidia.commit({**release(NEXT), BAR1: "int nothing_like_it;\n"})
        self.next = other
        self.pin()
        self.assert_refused(self.ctl("diff", f"fork/x-on-{NEXT}"), f"the patch of fork/x-on-{NEXT} on NVIDIA's {NEXT}: .*{BAR1}")

    def test_a_release_that_is_not_pinned_is_asked_for(self):
        self.pin({"commit": None, "known": None})
        self.assertEqual(self.said("diff", "fork/x")["base_commit"], self.base)
        git(self.nvidia.path, "tag", "--force", VERSION, self.next)
        self.assert_refused(self.ctl("diff", "fork/x"), f"commit {self.next} is NVIDIA's release [0-9.]+, and {VERSION} was expected")

    def test_a_commit_that_does_not_descend(self):
        self.head = self.fork.commit({**release(VERSION), **patch()}, "other")
        self.pin(branch="other")
        self.assert_refused(self.ctl("diff", "fork/x"), f"{self.head[:12]} does not descend from {self.base[:12]}", "Inspect it")

    def test_a_pinned_tree(self):
        self.pin()
        tree = self.said("diff", "fork/x")["tree"]
        self.pin(tree=tree)
        self.assertEqual(self.said("diff", "fork/x")["tree"], tree)
        self.pin(tree="4" * 40)
        self.assert_refused(self.ctl("diff", "fork/x"), f"is tree {tree}, and expected was {'4' * 40}", "Report it")

    def test_files_that_may_not_change(self):
        for name, content, why in ((f"{NV_PCI[:-3]}.sh", "touch /tmp/x\n", "is no C file"), ("kernel-open/Makefile", "all:\n", "is no C file"),
                                   ("src/nvidia/new.c", ("link", "/etc/passwd"), "is a symbolic link"), (BAR1, ("program", "int x;\n"), "has mode 100755"),
                                   ("kernel-open/conftest.sh", None, "is no C file")):
            with self.subTest(name):
                self.head = self.fork.commit({**patch(), name: content}, "bad", on=self.base)
                self.pin(branch="bad")
                self.assert_refused(self.ctl("diff", "fork/x"), f"the patch of fork/x touches {name}, which {why}", "Only C files")

    def test_a_patch_of_nothing(self):
        self.head = self.fork.commit({"README.md": "# other\n"}, "nothing", on=self.base)
        self.pin(branch="nothing")
        self.assert_refused(self.ctl("diff", "fork/x"), "changes nothing in NVIDIA's")

    def test_a_branch_that_moved(self):
        """The pinned commit is what counts: as long as somebody has it."""
        self.pin()
        self.fork.commit({"README.md": "# moved\n"}, BRANCH, on=self.base)
        git(self.fork.path, "config", "uploadpack.allowAnySHA1InWant", "true")
        self.assertEqual(self.said("diff", "fork/x")["commit"], self.head)
        git(self.fork.path, "reflog", "expire", "--expire=now", "--all")
        git(self.fork.path, "checkout", "--quiet", "--detach", BRANCH)
        git(self.fork.path, "reflog", "expire", "--expire=now", "--all")
        git(self.fork.path, "gc", "--quiet", "--prune=now")
        self.assert_refused(self.ctl("diff", "fork/x"), f"expected was {self.head}, which it does not have", "Give the plan a mirror")

    def test_mirrors(self):
        """A repository, the parent of OWNER/NAME, or bundles."""
        self.pin(repository="https://git.invalid/owner/name")
        drop_in = yaml.safe_load((self.tree / DROP_INS / "pinned.yaml").read_text())
        self.put("pinned.yaml", **{**drop_in, "releases_at": "https://git.invalid/NVIDIA/open-gpu-kernel-modules"})
        self.assert_refused(self.ctl("diff", "fork/x"), f"NVIDIA's release {VERSION} could not be fetched: .*git.invalid", "Give the plan a mirror")
        above = self.scratch / "above"
        shutil.copytree(self.nvidia.path, above / "NVIDIA/open-gpu-kernel-modules")
        shutil.copytree(self.fork.path, above / "owner/name")
        bundles = self.scratch / "bundles"
        self.nvidia.bundle(bundles / f"{self.base}.bundle", self.base)
        self.fork.bundle(bundles / f"{self.head}.bundle", self.head)
        for mirrors in ([above], [self.fork.path], [bundles], [self.scratch / "none", bundles], [self.nvidia.path, self.fork.path]):
            with self.subTest(mirrors):
                words = [word for mirror in mirrors for word in ("--mirror", f"file://{mirror}")]
                self.assertEqual(self.said("diff", "fork/x", *words)["commit"], self.head)
        for mirror in ("/srv/x", "ssh://x", "https://me:pw@x"):
            done = self.ctl("diff", "fork/x", "--mirror", mirror)
            self.assert_refused(done, "mirrors: ")
            self.assertNotIn("pw", done.stderr)

    def test_a_patch_file(self):
        text = git(self.fork.path, "diff", "--full-index", self.base, self.head, "--", "kernel-open", "src") + "\n"
        self.patch_file(text)
        said = self.said("diff", "fork/x")
        self.assertEqual((said["commit"], said["patch"]), (hashlib.sha256(text.encode()).hexdigest(), text))
        self.patch_file(text, sha256="5" * 64)
        self.assert_refused(self.ctl("diff", "fork/x"), f"has the SHA-256 {said['commit']}, and expected was {'5' * 64}")
        hidden = "--- /dev/null\n+++ b/kernel-open/Kbuild\n@@ -0,0 +1 @@\n+all: ; touch /tmp/x\n"  # git-apply(1) takes this form, too
        for bad, why in ((git(self.fork.path, "diff", self.base, self.head) + "\n", "touches README.md, which is outside kernel-open/ and src/"),
                         ("", "changes nothing in NVIDIA's"), ("x\n", "the patch of fork/x on"),
                         (text.replace("-int override;", "-int other;"), "the patch of fork/x on"),
                         (hidden + text, "touches kernel-open/Kbuild, which is no C file"), (text + hidden, "touches kernel-open/Kbuild, which is no C file")):
            with self.subTest(why, text=bad[:30]):
                self.patch_file(bad)
                self.assert_refused(self.ctl("diff", "fork/x"), why)

    def patch_file(self, text, sha256=None):
        file = self.scratch / "x.patch"
        write(file, text)
        self.pin(repository=None, branch=None, commit=None, grafts=None, file=f"file://{file}", sha256=sha256 or hashlib.sha256(text.encode()).hexdigest())

    def test_what_a_terminal_does_is_not_in_it(self):
        """A program gets the patch byte for byte, a terminal nothing that it obeys."""
        self.head = self.fork.commit({BAR1: f"{CONTEXT}int override = 1; /* \x1b]0;title\x07 */\n"}, "bad", on=self.base)
        self.pin(branch="bad")
        self.assertIn(b"\x1b]0;", self.ctl("diff", "fork/x", text=False).stdout)
        master, slave = pty.openpty()
        child = subprocess.Popen([P2PCTL, "catalogue", "diff", "fork/x", "--root", str(self.tree)], stdout=slave, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        os.close(slave)
        self.assertNotIn(b"\x1b]0;", all_of(master))
        self.assertEqual(child.wait(60), 0)

    def test_an_unknown_id(self):
        self.assert_refused(self.ctl("diff", "tinygrad/565.57.01-p2"), "the catalogue has no entry", r"Did you mean tinygrad/565\.57\.01-p2p\?")
        self.assert_refused(self.ctl("diff", "x"), "the catalogue has no entry", "lists them")


def all_of(terminal):
    """What was written to a terminal by all who have it open."""
    text = b""
    try:
        while piece := os.read(terminal, 65536):
            text += piece
    except OSError:
        pass  # the last of them has closed it
    os.close(terminal)
    return text


class Allow(Forks):
    FILE = f"{DROP_INS}/allowed-fork--x.yaml"

    def allow(self, *words, answer=None, id_="fork/x"):
        """`answer`: of a person at a terminal; None: there is none."""
        if answer is None:
            return self.ctl("allow", id_, "--runfile-host", self.web.url, *words)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        os.write(master, answer.encode() + b"\n")
        done = self.ctl("allow", id_, "--runfile-host", self.web.url, *words, stdin=slave)
        os.close(slave)
        return done

    def assert_allowed(self, done, wanted):
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        tables = yaml.safe_load((self.tree / self.FILE).read_text())
        SCHEMA.validate(tables)
        self.assertEqual(tables["allowed"], {"fork/x": wanted})
        self.assertEqual([name for name in picture(self.tree) if name not in self.before], [self.FILE])
        self.assertEqual([self.entries()["fork/x"][key] for key in ("usable", "base_commit")], [True, self.base])

    def hashes(self, **changes):
        return {"base_commit": self.base, "commit": self.head, "runfile_sha256": SUM, **changes}

    def test_a_person_says_yes(self):
        self.pin(known="single-source")
        self.assertEqual(self.entries()["fork/x"]["usable"], False)
        done = self.allow(answer="y")
        for words in (r"\Afork/x\n", f"patch .*{self.head} \\(single source\\)", "2 files changed", f"runfile +SHA-256 {SUM}, as the catalogue has it",
                      "p2pctl catalogue diff fork/x", r"Use it on this machine, with these hashes\? \[y/N\]", f"allowed: {self.tree}/{self.FILE}"):
            self.assertRegex(done.stdout, words)
        self.assert_allowed(done, self.hashes())
        self.assertEqual(self.web.asked, [])
        self.assertNotIn(self.entries()["fork/x"]["fit"], ("candidate", "rejected"))

    def test_a_person_says_anything_else(self):
        self.pin(known="single-source")
        for answer in ("", "n", "yy"):
            done = self.allow(answer=answer)
            self.assertEqual(done.returncode, 1, answer)
            self.assert_unchanged()

    def test_nobody_is_there(self):
        self.pin(known="single-source")
        self.assert_refused(self.allow(), "standard input is not a terminal: the question cannot be asked", "--yes")
        self.assert_allowed(self.allow("--yes"), self.hashes())

    def test_a_program_asks(self):
        self.pin(known="single-source")
        self.assert_refused(self.allow("--json"), "standard input is not a terminal: the question cannot be asked", "--yes")
        told = json.loads(self.allow("--json", "--yes").stdout)
        self.assertEqual({key: told[key] for key in ("id", "changed", "path", "commit", "runfile_sha256")},
                         {"id": "fork/x", "changed": True, "path": f"{self.tree}/{self.FILE}", "commit": self.head, "runfile_sha256": SUM})
        again = json.loads(self.allow("--json", "--yes").stdout)
        self.assertEqual((again["id"], again["changed"]), ("fork/x", False))

    def test_a_sum_that_nobody_has_is_asked_for(self):
        self.pin(self.without_sum())
        self.assertIn("nobody has the SHA-256 of its runfile", self.entries()["fork/x"]["reason"])
        done = self.allow("--yes")
        self.assertIn(f"SHA-256 {SUM}, {self.web.url}{self.path}.sha256sum", done.stdout)
        self.assert_allowed(done, self.hashes())
        self.assert_only_the_sum_is_fetched()

    def without_sum(self):
        return {"runfile": {"path": self.path, "known": "single-source"}}

    def test_nobody_publishes_the_sum(self):
        self.pin(self.without_sum())
        self.web.routes.clear()
        self.assert_refused(self.allow("--yes"), r"127\.0\.0\.1|proxy|no runfile")

    def test_a_release_that_is_not_pinned(self):
        self.pin({"commit": None, "known": None}, known="single-source")
        self.assert_allowed(self.allow("--yes"), self.hashes())

    def test_what_is_not_what_is_pinned(self):
        self.pin(known="single-source", tree="4" * 40)
        self.assert_refused(self.allow("--yes"), "and expected was")

    def test_void_when_hashes_change(self):
        self.pin(self.without_sum(), known="single-source")
        self.assert_allowed(self.allow("--yes"), self.hashes())
        other = {"runfile": {"path": self.path, "sha256": "cd" * 32, "known": "single-source"}}
        for release_row, changes in ((None, {"commit": "2" * 40}), ({"commit": "3" * 40}, {}), (other, {})):
            with self.subTest(changes=changes, release=release_row):
                self.pin(release_row, known="single-source", **changes)
                self.assertEqual([self.entries()["fork/x"][key] for key in ("usable", "fit")], [False, "candidate"])
        self.pin(known="single-source")
        self.assertTrue(self.entries()["fork/x"]["usable"])
        (self.tree / self.FILE).unlink()
        self.assertFalse(self.entries()["fork/x"]["usable"])

    def test_another_entry_is_not_allowed_with_it(self):
        self.pin(known="single-source")
        self.allow("--yes")
        self.assertEqual([self.entries()[id_]["usable"] for id_ in ("fork/x", f"fork/x-on-{NEXT}")], [True, False])
        self.assertEqual(self.allow("--yes", id_=f"fork/x-on-{NEXT}").returncode, 0)
        self.assertTrue(self.entries()[f"fork/x-on-{NEXT}"]["usable"])

    def test_what_may_be_used_already(self):
        self.pin()
        done = self.allow()
        self.assertEqual((done.returncode, done.stdout), (0, "fork/x may be used already: it is verified\n"))
        self.assert_unchanged()
        self.pin(known="single-source")
        self.allow("--yes")
        self.assertEqual(self.allow().stdout, "fork/x may be used already: it is allowed\n")

    def test_an_unknown_id(self):
        self.assert_refused(self.allow(id_="none/none"), "the catalogue has no entry")


class Add(Forks):
    """What the catalogue does not have: NVIDIA's release is found by its tag, at a mirror."""

    def setUp(self):
        super().setUp()
        self.branch = BRANCH
        self.drop_in = self.tree / DROP_INS / f"my-fork-{BRANCH}.yaml"
        self.allowed = self.tree / DROP_INS / f"allowed-my-fork--{BRANCH}.yaml"

    def add(self, *words, repository=None, hosts=None, branch=None, env=None, build="--no-build"):
        options = [word for host in hosts or [self.web.url] for word in ("--runfile-host", host)]
        return self.ctl("add", repository or self.fork.path, branch or self.branch, "--mirror", f"file://{self.scratch}",
                        *options, *filter(None, (build,)), *words, env=env)

    def added(self, *words, **more):
        done = self.add("--json", *words, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_the_drop_in(self):
        said = self.added()
        self.assertEqual((said["schema"], said["id"], said["commit"], said["base_commit"]),
                         ("p2pd.catalogue-addition/2", f"my-fork/{BRANCH}", self.head, self.base))
        self.assertEqual((said["path"], said["left_out"], said["driver_version"]), (str(self.drop_in), ["README.md"], VERSION))
        self.assertEqual(said["runfile"], {"url": self.web.url + self.path, "sha256": SUM, "bytes": 4_000})
        text = self.drop_in.read_text()
        tables = yaml.safe_load(text)
        SCHEMA.validate(tables)
        self.assertNotIn("runfile_hosts", tables)
        self.assertEqual(tables["releases"], {VERSION: {
            "commit": self.base, "known": "single-source", "compat": ["drm-atomic-commit", "of-gpio", "pci-resize-exclude-bars", "strncpy"],
            "runfile": {"path": self.path, "sha256": SUM, "bytes": 4_000, "known": "single-source"}}})
        self.assertEqual(tables["patches"], {f"my-fork/{BRANCH}": {
            "repository": self.fork.url, "branch": BRANCH, "commit": self.head, "known": "single-source", "base": VERSION, "tree": said["tree"],
            "architectures": {"Ada": "unknown"}}})
        self.assertIn("plain http", text)
        listed = self.entries()[said["id"]]
        self.assertEqual((listed["usable"], listed["fit"], listed["source"]), (False, "candidate", "/" + str(self.drop_in.relative_to(self.tree))))
        self.assertEqual([name for name in picture(self.tree) if name not in self.before], ["etc/p2pd", DROP_INS, f"{DROP_INS}/{self.drop_in.name}"])

    def test_nothing_more_than_needed_is_fetched(self):
        self.added()
        self.assert_only_the_sum_is_fetched()

    def test_yes_makes_it_usable(self):
        done = self.add("--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        tables = yaml.safe_load(self.allowed.read_text())
        SCHEMA.validate(tables)
        self.assertEqual(tables["runfile_hosts"], [self.web.url])
        self.assertEqual(tables["allowed"], {f"my-fork/{BRANCH}": {"base_commit": self.base, "commit": self.head, "runfile_sha256": SUM}})
        said = self.listed()
        self.assertEqual(said["entry"], f"my-fork/{BRANCH}")
        self.assertTrue(self.entries()[f"my-fork/{BRANCH}"]["usable"])

    def test_nobody_is_asked_where_nobody_is(self):
        for words in ((), ("--json",)):
            self.assertEqual(self.add(*words).returncode, 0)
            self.assertFalse(self.allowed.exists())
            self.drop_in.unlink()

    def test_for_people(self):
        done = self.add("--id", f"other.name/{BRANCH}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"\Aother\.name/{BRANCH} is pinned: {self.tree}/{DROP_INS}/")
        for words in (f"source +NVIDIA's {VERSION}: {self.base}", f"patch .*{self.head}", "2 files changed", f"next +read it: p2pctl catalogue diff other.name/{BRANCH}",
                      f"p2pctl catalogue allow other.name/{BRANCH}"):
            self.assertRegex(done.stdout, words)

    def test_a_build_that_is_not_possible_leaves_the_pins(self):
        """A machine record runs no compiler."""
        done = self.add("--yes", build=None)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"p2pctl: my-fork/{BRANCH} is pinned, but: ")
        self.assertTrue(self.drop_in.exists())
        self.assertFalse(self.allowed.exists(), "what does not build is not used")

    def test_no_build_beside_a_run(self):
        """One worker at a time: it would build what a run builds."""
        lock = pathlib.Path(f"{self.tree}.p2pd/lock")
        lock.parent.mkdir()
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = self.add("--yes", build=None)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"p2pctl: my-fork/{BRANCH} is pinned, but: another process holds the state: python3")
        self.assertFalse(self.allowed.exists())

    def test_a_release_that_is_in_the_catalogue(self):
        """Nothing of it is said again, and NVIDIA is asked for nothing that is pinned."""
        self.pin()
        shutil.rmtree(self.nvidia.path / ".git/refs/tags")
        said = self.added("--yes")
        self.assertEqual(said["base_commit"], self.base)
        self.assertNotIn("releases", yaml.safe_load(self.drop_in.read_text()))
        self.assertEqual(self.web.asked, [])
        self.assertTrue(self.entries()[f"my-fork/{BRANCH}"]["usable"])

    def test_a_release_in_the_catalogue_without_a_sum(self):
        self.pin({"runfile": {"path": self.path, "known": "single-source"}})
        self.assertEqual(self.added("--yes")["runfile"]["sha256"], SUM)
        self.assertEqual(yaml.safe_load(self.allowed.read_text())["allowed"][f"my-fork/{BRANCH}"]["runfile_sha256"], SUM)
        self.assertTrue(self.entries()[f"my-fork/{BRANCH}"]["usable"])

    def test_a_head_that_does_not_descend(self):
        head = self.fork.commit({**release(VERSION), **patch()}, "alone")
        self.assert_refused(self.add(branch="alone"), f"{head[:12]} does not descend from {self.base[:12]}")

    def test_a_file_that_may_not_change(self):
        self.fork.commit({**patch(), "kernel-open/Kbuild": "all:\n\ttouch /tmp/x\n"}, "bad", on=self.base)
        self.assert_refused(self.add("--yes", branch="bad"), "touches kernel-open/Kbuild, which is no C file", "Only C files")

    def test_a_release_without_a_tag(self):
        git(self.nvidia.path, "tag", "--delete", VERSION)
        self.assert_refused(self.add(), f"NVIDIA's release {VERSION} could not be fetched: .*has no refs/tags/{VERSION}")

    def test_a_tag_of_the_name_does_not_count(self):
        git(self.fork.path, "tag", BRANCH, self.base)
        git(self.fork.path, "update-ref", f"refs/other/refs/heads/{BRANCH}", self.base)
        self.assertEqual(self.added()["commit"], self.head)

    def test_only_a_tag(self):
        git(self.fork.path, "tag", "tagged", self.head)
        self.assert_refused(self.add(branch="tagged"), "has no refs/heads/tagged", "git ls-remote")

    def test_branches_that_are_not_there(self):
        for branch in ("none", "p2p", VERSION + "-p2", "main2"):
            with self.subTest(branch):
                self.assert_refused(self.add(branch=branch), f"has no refs/heads/{branch}")

    def test_names_that_another_reader_of_yaml_could_take_for_something_else(self):
        for branch in ("580", "true", "null", "0x10"):
            with self.subTest(branch):
                git(self.fork.path, "update-ref", f"refs/heads/{branch}", self.head)
                said = self.added("--yes", branch=branch)
                tables = yaml.safe_load(pathlib.Path(said["path"]).read_text())
                self.assertEqual(tables["patches"][f"my-fork/{branch}"]["branch"], branch)
                self.assertTrue(self.entries()[f"my-fork/{branch}"]["usable"])

    def test_names_that_cannot_be(self):
        for branch in ("a/b", "*", "a b", "..", ".x", "ü", "a\nb", "refs/heads/main", "x" * 200):
            with self.subTest(branch):
                self.assert_refused(self.add(branch=branch), "has characters|no id")
        for id_ in ("x", "x/other", f"a/b/{BRANCH}", f"../{BRANCH}", f"/{BRANCH}", f".x/{BRANCH}"):
            with self.subTest(id_):
                self.assert_refused(self.add("--id", id_), "cannot be the entry's id")
        for host in ("ftp://x", "http://x/path", "x", "file://x", "https://me:pw@x"):
            with self.subTest(host):
                done = self.add(hosts=[host])
                self.assert_refused(done, "runfile_hosts|user name")
                self.assertNotIn("pw", done.stderr)

    def test_repositories_that_cannot_be(self):
        (self.scratch / "plain").mkdir()
        for repository in ("http://127.0.0.1/x", "ssh://x/y", "git@github.com:a/b", "ext::sh -c id", self.scratch / "none", "--upload-pack=touch /tmp/x"):
            with self.subTest(repository):
                self.assertEqual(self.add(repository=repository).returncode, 1)
                self.assert_unchanged()
        self.assert_refused(self.add(repository=self.scratch / "plain"), "ls-remote", "Check the address")

    def test_version_mk(self):
        for n, content in enumerate((None, ("link", "/etc/passwd"))):
            self.fork.commit({"version.mk": content}, f"none{n}", on=self.base)
            self.assert_refused(self.add(branch=f"none{n}"), rf"branch none{n}: .*has no file version\.mk")
        for n, content in enumerate(("", "junk", b"\xff\x00\xfe" * 1000, "NVIDIA_VERSION = $(shell id)\n", "NVIDIA_VERSION = ../..\n",
                                     "NVIDIA_VERSION = 580.1\nNVIDIA_VERSION = 580.2\n")):
            with self.subTest(content):
                self.fork.commit({"version.mk": content}, f"junk{n}", on=self.base)
                self.assert_refused(self.add(branch=f"junk{n}"), rf"branch junk{n}: version\.mk (has no|does not name)")

    def test_before_575(self):
        old = self.nvidia.release("570.99.01")
        git(self.fork.path, "fetch", "--quiet", self.nvidia.path, old)
        self.fork.commit(patch(), "old", on=old)
        self.publish("/XFree86/Linux-x86_64", "570.99.01")
        self.added(branch="old")
        row = yaml.safe_load((self.tree / DROP_INS / "my-fork-old.yaml").read_text())["patches"]["my-fork/old"]
        self.assertEqual(row["registry_dwords_forbidden"], {"RMForceP2PType": 1})

    def test_a_source_that_knows_what_headers_hold(self):
        knows = self.nvidia.commit({**release(VERSION), "kernel-open/conftest.sh": "exclude_bars\nstruct drm_atomic_commit *state\n"})
        git(self.nvidia.path, "tag", "--force", VERSION, knows)
        git(self.fork.path, "fetch", "--quiet", self.nvidia.path, knows)
        self.fork.commit(patch(), BRANCH, on=knows)
        self.added()
        self.assertEqual(yaml.safe_load(self.drop_in.read_text())["releases"][VERSION]["compat"], ["of-gpio", "strncpy"])

    def test_cards_that_a_release_does_not_serve(self):
        self.use("rtx5090-x2-genoa")
        self.assertEqual((self.added()["id"], self.entries()[f"my-fork/{BRANCH}"]["architectures"]), (f"my-fork/{BRANCH}", {"Blackwell": "unknown"}))
        old = self.nvidia.release("570.99.01")
        git(self.fork.path, "fetch", "--quiet", self.nvidia.path, old)
        self.fork.commit(patch(), "old", on=old)
        self.publish("/XFree86/Linux-x86_64", "570.99.01")
        done = self.add(branch="old")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("driver 570.99.01 gives no P2P between Blackwell cards\n  next: Use a branch of driver 575 or later.", done.stderr)

    def test_the_other_tree_and_the_other_host(self):
        other = Web()
        self.addCleanup(other.close)
        del self.web.routes[self.path + ".sha256sum"]
        self.publish("/tesla")
        said = self.added(hosts=[other.url, self.web.url])
        self.assertEqual(said["runfile"]["url"], f"{self.web.url}/tesla/{VERSION}/NVIDIA-Linux-x86_64-{VERSION}.run")
        self.assertEqual(len(other.asked), 2)

    def test_a_mirror_of_files(self):
        mirror = self.scratch / "mirror"
        write(mirror / self.path[1:], bytes(123))
        write(mirror / (self.path[1:] + ".sha256sum"), f"{SUM}  {self.path.rsplit('/', 1)[1]}\n")
        said = self.added(hosts=[f"file://{mirror}"])
        self.assertEqual((said["runfile"]["bytes"], self.web.asked), (123, []))

    def test_what_is_there_is_not_overwritten(self):
        self.added()
        self.before = picture(self.tree)
        self.assert_refused(self.add(), "is in the catalogue already", "--id OTHER/")
        write(self.drop_in.with_name(f"a-{BRANCH}.yaml"), "schema: p2pd.catalogue/2\n")
        self.before = picture(self.tree)
        self.assert_refused(self.add("--id", f"a/{BRANCH}"), "exists, and is not overwritten")
        taken, row = next(iter(SHIPPED["patches"].items()))
        self.assert_refused(self.add("--id", taken, branch=row["branch"]), "already", "p2pctl catalogue allow")

    def bad_host(self, pattern, sum_route=None, run_route=None):
        """A bad answer for the sum or the runfile: an error that says so."""
        if sum_route:
            self.web.routes[self.path + ".sha256sum"] = sum_route
        if run_route:
            self.web.routes[self.path] = run_route
        self.assert_refused(self.add(), pattern)

    def test_sums_that_are_none(self):
        for text in (b"", b"<html>404</html>", b"\xff\xfe" * 100, SUM.encode(), f"{SUM}  other.run".encode(), b"0" * 100_000):
            with self.subTest(text[:20]):
                self.bad_host("no SHA-256 of|more than 65536 bytes|server", sum_route=good(text))

    def test_servers_in_trouble(self):
        for code in (403, 500, 503):
            with self.subTest(code):
                self.bad_host(f"the server answers {code}", sum_route=status(code))

    def test_a_redirect_in_circles(self):
        self.bad_host("more than 5 redirects", sum_route=redirect(self.path + ".sha256sum"))

    def test_a_redirect_to_a_file(self):
        self.bad_host("another scheme", sum_route=redirect("file:///etc/passwd"))

    def test_a_runfile_without_a_size(self):
        self.bad_host("does not report its size", run_route=lambda r: r.say(200, b"x" * 10, Content_Length=None))

    def test_nothing_is_published(self):
        self.web.routes.clear()
        self.bad_host(r"127\.0\.0\.1|proxy|no runfile")

    def test_stop(self):
        self.web.routes[self.path + ".sha256sum"] = stall(b"abc", 1)
        scratch = self.scratch / "tmp"
        scratch.mkdir()
        child = subprocess.Popen([P2PCTL, "catalogue", "add", self.fork.path, BRANCH, "--runfile-host", self.web.url, "--mirror",
                                  f"file://{self.scratch}", "--root", str(self.tree)], stderr=subprocess.PIPE, text=True,
                                 env={**ENVIRONMENT, "TMPDIR": str(scratch)})
        for _ in range(400):
            if self.web.asked:
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        words = child.communicate(timeout=20)[1]
        self.assertEqual(child.returncode, 1)
        self.assertRegex(words, "asked to stop")
        self.assertEqual(list(scratch.iterdir()), [])
        self.assert_unchanged()

    def test_nothing_is_left_behind(self):
        scratch = self.scratch / "tmp"
        scratch.mkdir()
        self.added(env={"TMPDIR": str(scratch)})
        self.fork.commit({**patch(), "kernel-open/Kbuild": "all:\n"}, "bad", on=self.base)
        self.assertEqual(self.add(branch="bad", env={"TMPDIR": str(scratch)}).returncode, 1)
        self.assertEqual(list(scratch.iterdir()), [])

    def test_hooks_and_configuration_do_not_act(self):
        trap, mark = self.scratch / "trap", self.scratch / "mark"
        write(trap, f"#!/bin/sh\ntouch {mark}\nexit 1\n", 0o755)
        home = self.scratch / "home"
        write(home / ".gitconfig", f"[core]\n\thooksPath = {self.scratch}\n\taskPass = {trap}\n[credential]\n\thelper = {trap}\n"
                                   f"[url \"file:///none\"]\n\tinsteadOf = file://\n[uploadpack]\n\tpackObjectsHook = {trap}\n")
        self.added(env={"HOME": str(home), "XDG_CONFIG_HOME": str(home), "GIT_ASKPASS": str(trap), "GIT_DIR": "/none"})
        self.assertFalse(mark.exists())


if __name__ == "__main__":
    unittest.main()
