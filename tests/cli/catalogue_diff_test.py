#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl catalogue diff and allow: a patch as git applies it, and an entry that a person accepts as it is.
P2PD_BUILD: the build directory."""
import hashlib
import json
import shutil
import subprocess
import unittest

from catalogue_case import BRANCH, DROP_INS, ENVIRONMENT, NEXT, SUM, VERSION, Forks
from cli_case import P2PCTL, picture, write
from forks import BAR1, CONTEXT, NV_PCI, git, patch, release
from terminal import on_terminal


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
        """The pinned commit counts, as long as a repository has it."""
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
        drop_in = self.tables(self.tree / DROP_INS / "pinned.yaml")
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
        hidden = "--- /dev/null\n+++ b/kernel-open/Kbuild\n@@ -0,0 +1 @@\n+all: ; touch /tmp/x\n"  # git-apply(1) accepts this form, too
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
        """A program gets the patch byte for byte, a terminal no control sequences."""
        self.head = self.fork.commit({BAR1: f"{CONTEXT}int override = 1; /* \x1b]0;title\x07 */\n"}, "bad", on=self.base)
        self.pin(branch="bad")
        self.assertIn(b"\x1b]0;", self.ctl("diff", "fork/x", text=False).stdout)
        status, text = on_terminal([P2PCTL, "catalogue", "diff", "fork/x", "--root", self.tree], stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        self.assertNotIn("\x1b]0;", text)
        self.assertEqual(status, 0)

    def test_an_unknown_id(self):
        self.assert_refused(self.ctl("diff", "tinygrad/565.57.01-p2"), r'the catalogue has no entry .*; did you mean "tinygrad/565\.57\.01-p2p"\?')
        self.assert_refused(self.ctl("diff", "x"), "the catalogue has no entry", "lists them")


class Allow(Forks):
    FILE = f"{DROP_INS}/allowed-fork--x.yaml"

    def allow(self, *words, answer=None, id_="fork/x"):
        """`answer`: of a person at a terminal; None: there is none."""
        words = ["allow", id_, "--runfile-host", self.web.url, *words]
        if answer is None:
            return self.ctl(*words)
        status, text = on_terminal([P2PCTL, "catalogue", *words, "--root", self.tree], answer + "\n", columns=500, asked="[y/N] ", env=ENVIRONMENT | {"NO_COLOR": "1"})
        return subprocess.CompletedProcess(words, status, text.replace("\r", ""), "")

    def assert_allowed(self, done, wanted):
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(self.tables(self.tree / self.FILE)["allowed"], {"fork/x": wanted})
        self.assertEqual([name for name in picture(self.tree) if name not in self.before], [self.FILE])
        self.assertEqual([self.entries()["fork/x"][key] for key in ("usable", "base_commit")], [True, self.base])

    def hashes(self, **changes):
        return {"base_commit": self.base, "commit": self.head, "runfile_sha256": SUM, **changes}

    def test_a_graft_that_no_file_lists(self):
        """For installed packages of that version: the release's commit is asked of NVIDIA, and no runfile is wanted."""
        self.pin(grafts=None)
        id_ = f"fork/x-on-{NEXT}"
        done = self.allow(answer="y", id_=id_)
        self.assertEqual(done.returncode, 0, done.stderr)
        for told in (f"the patch was made for {VERSION}", "those of installed packages", "not pinned: NVIDIA is asked", "P2P reported on"):
            self.assertIn(told, done.stdout)
        hashes = {"base_commit": self.next, "commit": self.head}
        self.assertEqual(self.tables(self.tree / DROP_INS / f"allowed-fork--x-on-{NEXT}.yaml")["allowed"], {id_: hashes})
        self.assertEqual(self.web.asked, [])
        entry = self.entries()[id_]
        self.assertEqual((entry["usable"], entry["base_commit"], entry["tree"]), (True, self.next, None))

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

    def test_a_program_asks(self):
        self.pin(known="single-source")
        told = json.loads(self.allow("--json", "--yes").stdout)
        self.assertEqual({key: told[key] for key in ("id", "changed", "path", "commit", "runfile_sha256")},
                         {"id": "fork/x", "changed": True, "path": f"{self.tree}/{self.FILE}", "commit": self.head, "runfile_sha256": SUM})
        again = json.loads(self.allow("--json", "--yes").stdout)
        self.assertEqual((again["id"], again["changed"]), ("fork/x", False))

    def test_a_sum_that_nobody_has_is_asked_for(self):
        self.pin(self.without_sum())
        self.assertIn("the SHA-256 of its runfile is not known", self.entries()["fork/x"]["reason"])
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


if __name__ == "__main__":
    unittest.main()
