#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl catalogue add: the pins it writes, the questions it asks, and its refusals. P2PD_BUILD: the build directory."""
import fcntl
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from catalogue_case import BRANCH, DROP_INS, ENVIRONMENT, SHIPPED, SUM, VERSION, Forks
from cli_case import P2PCTL, picture, write
from forks import git, patch, release
from web import Web, good, redirect, stall, status


class Add(Forks):
    """Addition of a fork whose base the catalogue lacks: NVIDIA's release is found by its tag, in a mirror."""

    def setUp(self):
        super().setUp()
        self.drop_in = self.tree / DROP_INS / f"my-fork-{BRANCH}.yaml"
        self.allowed = self.tree / DROP_INS / f"allowed-my-fork--{BRANCH}.yaml"

    def add(self, *words, repository=None, hosts=None, branch=None, env=None, build="--no-build"):
        options = [word for host in hosts or [self.web.url] for word in ("--runfile-host", host)]
        agreed = () if "--yes" in words else ("--pin-only",)
        return self.ctl("add", repository or self.fork.path, branch or BRANCH, "--mirror", f"file://{self.scratch}",
                        *options, *filter(None, (build,)), *agreed, *words, env=env)

    def added(self, *words, **more):
        return self.document(self.add("--json", *words, **more))

    def test_the_drop_in(self):
        said = self.added()
        self.assertEqual((said["schema"], said["id"], said["commit"], said["base_commit"]),
                         ("p2pd.catalogue-addition/2", f"my-fork/{BRANCH}", self.head, self.base))
        self.assertEqual((said["path"], said["left_out"], said["driver_version"]), (str(self.drop_in), ["README.md"], VERSION))
        self.assertEqual(said["runfile"], {"url": self.web.url + self.path, "sha256": SUM, "bytes": 4_000})
        tables = self.tables(self.drop_in)
        self.assertNotIn("runfile_hosts", tables)
        self.assertEqual(tables["releases"], {VERSION: {
            "commit": self.base, "known": "single-source", "compat": ["drm-atomic-commit", "of-gpio", "pci-resize-exclude-bars", "strncpy"],
            "runfile": {"path": self.path, "sha256": SUM, "bytes": 4_000, "known": "single-source"}}})
        self.assertEqual(tables["patches"], {f"my-fork/{BRANCH}": {
            "repository": self.fork.url, "branch": BRANCH, "commit": self.head, "known": "single-source", "base": VERSION, "tree": said["tree"],
            "architectures": {"Ada": "unknown"}}})
        self.assertIn("plain http", self.drop_in.read_text())
        listed = self.entries()[said["id"]]
        self.assertEqual((listed["usable"], listed["fit"], listed["source"]), (False, "candidate", "/" + str(self.drop_in.relative_to(self.tree))))
        self.assertEqual([name for name in picture(self.tree) if name not in self.before], ["etc/p2pd", DROP_INS, f"{DROP_INS}/{self.drop_in.name}"])

    def test_nothing_more_than_needed_is_fetched(self):
        self.added()
        self.assert_only_the_sum_is_fetched()

    def test_yes_makes_it_usable(self):
        done = self.add("--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        tables = self.tables(self.allowed)
        self.assertEqual(tables["runfile_hosts"], [self.web.url])
        self.assertEqual(tables["allowed"], {f"my-fork/{BRANCH}": {"base_commit": self.base, "commit": self.head, "runfile_sha256": SUM}})
        said = self.listed()
        self.assertEqual(said["entry"], f"my-fork/{BRANCH}")
        self.assertTrue(self.entries()[f"my-fork/{BRANCH}"]["usable"])

    def test_for_people(self):
        done = self.add("--id", f"other.name/{BRANCH}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"(?s)\Aother\.name/{BRANCH}\n.*\nother\.name/{BRANCH} is pinned: {self.tree}/{DROP_INS}/")
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
        """One worker at a time: the addition would build the same as a run."""
        self.state.mkdir()
        with (self.state / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = self.add("--yes", build=None)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"p2pctl: my-fork/{BRANCH} is pinned, but: another process holds the state: python3")
        self.assertFalse(self.allowed.exists())

    def test_a_release_that_is_in_the_catalogue(self):
        """The release is not written again, and NVIDIA is asked for nothing that is pinned."""
        self.pin()
        shutil.rmtree(self.nvidia.path / ".git/refs/tags")
        said = self.added("--yes")
        self.assertEqual(said["base_commit"], self.base)
        self.assertNotIn("releases", self.tables(self.drop_in))
        self.assertEqual(self.web.asked, [])
        self.assertTrue(self.entries()[f"my-fork/{BRANCH}"]["usable"])

    def test_a_release_in_the_catalogue_without_a_sum(self):
        self.pin({"runfile": {"path": self.path, "known": "single-source"}})
        self.assertEqual(self.added("--yes")["runfile"]["sha256"], SUM)
        self.assertEqual(self.tables(self.allowed)["allowed"][f"my-fork/{BRANCH}"]["runfile_sha256"], SUM)
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
                self.assertEqual(self.tables(pathlib.Path(said["path"]))["patches"][f"my-fork/{branch}"]["branch"], branch)
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
        none, junk = r".*has no file version\.mk", r"version\.mk (has no|does not name)"
        for n, (content, why) in enumerate((
                (None, none), (("link", "/etc/passwd"), none), ("", junk), ("junk", junk), (b"\xff\x00\xfe" * 1000, junk),
                ("NVIDIA_VERSION = $(shell id)\n", junk), ("NVIDIA_VERSION = ../..\n", junk),
                ("NVIDIA_VERSION = 580.1\nNVIDIA_VERSION = 580.2\n", junk))):
            with self.subTest(content):
                self.fork.commit({"version.mk": content}, f"bad{n}", on=self.base)
                self.assert_refused(self.add(branch=f"bad{n}"), f"branch bad{n}: {why}")

    def old_branch(self):
        """A branch on a release before 575."""
        old = self.nvidia.release("570.99.01")
        git(self.fork.path, "fetch", "--quiet", self.nvidia.path, old)
        self.fork.commit(patch(), "old", on=old)
        self.publish("/XFree86/Linux-x86_64", "570.99.01")

    def test_before_575(self):
        self.old_branch()
        self.added(branch="old")
        row = self.tables(self.tree / DROP_INS / "my-fork-old.yaml")["patches"]["my-fork/old"]
        self.assertEqual(row["registry_dwords_forbidden"], {"RMForceP2PType": 1})

    def test_a_source_that_knows_what_headers_hold(self):
        knows = self.nvidia.commit({**release(VERSION), "kernel-open/conftest.sh": "exclude_bars\nstruct drm_atomic_commit *state\n"})
        git(self.nvidia.path, "tag", "--force", VERSION, knows)
        git(self.fork.path, "fetch", "--quiet", self.nvidia.path, knows)
        self.fork.commit(patch(), BRANCH, on=knows)
        self.added()
        self.assertEqual(self.tables(self.drop_in)["releases"][VERSION]["compat"], ["of-gpio", "strncpy"])

    def test_cards_that_a_release_does_not_serve(self):
        self.use("rtx5090-x2-genoa")
        self.assertEqual((self.added()["id"], self.entries()[f"my-fork/{BRANCH}"]["architectures"]), (f"my-fork/{BRANCH}", {"Blackwell": "unknown"}))
        self.old_branch()
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

    def bad_host(self, pattern, answer, to=".sha256sum"):
        """A bad answer for the sum or the runfile: an error that says so."""
        self.web.routes[self.path + to] = answer
        self.assert_refused(self.add(), pattern)

    def test_sums_that_are_none(self):
        for text in (b"", b"<html>404</html>", b"\xff\xfe" * 100, SUM.encode(), f"{SUM}  other.run".encode(), b"0" * 100_000):
            with self.subTest(text[:20]):
                self.bad_host("no SHA-256 of|more than 65536 bytes|server", good(text))

    def test_servers_in_trouble(self):
        for code in (403, 500, 503):
            with self.subTest(code):
                self.bad_host(f"the server answers {code}", status(code))

    def test_a_redirect_in_circles(self):
        self.bad_host("more than 5 redirects", redirect(self.path + ".sha256sum"))

    def test_a_redirect_to_a_file(self):
        self.bad_host("another scheme", redirect("file:///etc/passwd"))

    def test_a_runfile_without_a_size(self):
        self.bad_host("does not report its size", lambda r: r.say(200, b"x" * 10, Content_Length=None), to="")

    def test_nothing_is_published(self):
        self.web.routes.clear()
        self.assert_refused(self.add(), r"127\.0\.0\.1|proxy|no runfile")

    def test_nothing_is_published_and_the_packages_stay(self):
        self.use("ubuntu24-6.14-rtx4090-x2")
        self.has_driver(VERSION)
        self.web.routes.clear()
        self.assertIsNone(self.added("--yes")["runfile"])
        self.assertNotIn("runfile", self.tables(self.drop_in)["releases"][VERSION])
        self.assertNotIn("runfile_sha256", self.tables(self.allowed)["allowed"][f"my-fork/{BRANCH}"])
        said = self.listed()
        self.assertEqual((said["entry"], self.entries()[f"my-fork/{BRANCH}"]["usable"]), (f"my-fork/{BRANCH}", True))

    def test_stop(self):
        self.web.routes[self.path + ".sha256sum"] = stall(b"abc", 1)
        scratch = self.scratch / "tmp"
        scratch.mkdir()
        child = subprocess.Popen([P2PCTL, "catalogue", "add", "--pin-only", self.fork.path, BRANCH, "--runfile-host", self.web.url, "--mirror",
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
