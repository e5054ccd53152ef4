#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pctl catalogue and catalogue add: on machine records, with git repositories made here and a server on the loopback
interface. P2PD_BUILD: the build directory."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/sim"))
from tree import MACHINES, differences, golden, picture, write
from web import Web, good, redirect, stall, status

P2PCTL = str(pathlib.Path(os.environ["P2PD_BUILD"]).resolve() / "bin/p2pctl")
SCHEMA = json.loads((ROOT / "config/schema/catalogue.schema.json").read_text())
SHIPPED = json.loads((ROOT / "config/catalogue.yaml").read_text())["entries"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("GIT_")}
VERSION = "580.95.05"
SUM = "ab" * 32


def git(directory, *words):
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main",
               "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", "-C", str(directory), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**ENVIRONMENT, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}).stdout.strip()


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

    def ctl(self, *words, env=None):
        return subprocess.run([P2PCTL, "catalogue", *words, "--root", str(self.tree)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, env={**ENVIRONMENT, **(env or {})})

    def listed(self):
        done = self.ctl("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["schema"], "p2pd.catalogue-list/1")
        return said

    def entries(self):
        return {entry["id"]: entry for entry in self.listed()["entries"]}

    def put(self, name, *entries, **more):
        write(self.tree / "etc/p2pd/catalogue.d" / name, json.dumps({"schema": "p2pd.catalogue/1", "entries": entries, **more}))


class List(Case):
    def test_every_entry_is_there_and_nothing_changes(self):
        said = self.listed()
        self.assertEqual([e["id"] for e in said["entries"]], [e["id"] for e in SHIPPED])
        self.assertEqual([e["enabled"] for e in said["entries"]], [e["enabled"] for e in SHIPPED])
        text = self.ctl().stdout
        for entry in SHIPPED:
            self.assertIn(entry["id"], text)
            self.assertIn(entry["base_version"], text)
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def test_verdicts_are_the_probe_s(self):
        for record, finding in golden("driver-catalogue").items():
            facts = finding.get("facts", {})
            if not facts.get("gpus"):
                continue
            with self.subTest(record):
                self.use(record)
                said = self.listed()
                self.assertEqual(said["entry"], facts["entry"])
                if all(gpu["architecture"] for gpu in facts["gpus"]) and facts["kernels"]:
                    self.assertEqual([(e["id"], e["fit"], e["reason"]) for e in said["entries"]],
                                     [(e["entry"], e["fit"], e["reason"]) for e in facts["entries"]])
                else:
                    self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})

    def test_no_gpu_is_no_verdict(self):
        self.use("no-gpu")
        said = self.listed()
        self.assertEqual({e["fit"] for e in said["entries"]}, {"unknown"})
        self.assertRegex(said["entries"][0]["reason"], "no NVIDIA GPU")
        self.assertRegex(self.ctl().stdout, "no NVIDIA GPU")

    def test_a_drop_in_is_listed(self):
        entry = {**SHIPPED[0], "id": "mine/x", "fork": "mine", "branch": "x", "enabled": False, "architectures": {}}
        self.put("mine.json", entry)
        found = self.entries()["mine/x"]
        self.assertEqual((found["enabled"], found["source"], found["fit"]), (False, "/etc/p2pd/catalogue.d/mine.json", "candidate"))

    def test_bad_drop_ins(self):
        place = self.tree / "etc/p2pd/catalogue.d/bad.json"
        for content in ("", "{", b"\xff\xfe", "[]", "x" * (2 << 20)):
            with self.subTest(content[:10]):
                write(place, content)
                done = self.ctl()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"\Ap2pctl: .*/etc/p2pd/catalogue\.d/bad\.json")


class Add(Case):
    """A repository of a fork with branch "p2p", and a host with the runfile of its version."""

    def setUp(self):
        super().setUp()
        self.web = Web()
        self.addCleanup(self.web.close)
        self.repository = self.scratch / "my-fork"
        self.repository.mkdir()
        git(self.repository, "init", "--quiet")
        self.commit("main", "first")
        self.commit(VERSION + "-p2p", f"NVIDIA_VERSION = {VERSION}\n\n# more\n")
        self.branch = VERSION + "-p2p"
        self.drop_in = self.tree / f"etc/p2pd/catalogue.d/my-fork-{self.branch}.json"
        self.publish("/XFree86/Linux-x86_64")

    def commit(self, branch, version_mk):
        git(self.repository, "checkout", "--quiet", "-B", branch)
        (self.repository / "version.mk").write_bytes(version_mk if isinstance(version_mk, bytes) else version_mk.encode())
        git(self.repository, "add", "--all")
        git(self.repository, "commit", "--quiet", "--allow-empty", "--message", "x")
        return git(self.repository, "rev-parse", "HEAD")

    def publish(self, tree, version=VERSION):
        name = f"NVIDIA-Linux-x86_64-{version}.run"
        self.path = f"{tree}/{version}/{name}"
        self.web.routes[self.path] = stall(bytes(4_000), 1_000)  # nobody may want more than the beginning
        self.web.routes[self.path + ".sha256sum"] = f"{SUM}  {name}\n".encode()

    def add(self, *words, repository=None, hosts=None, branch=None, env=None):
        options = [word for host in hosts or [self.web.url] for word in ("--runfile-host", host)]
        return self.ctl("add", str(repository or self.repository), branch or self.branch, *options, *words, env=env)

    def added(self, *words, **more):
        done = self.add("--json", *words, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_refused(self, done, pattern, next_pattern="."):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"\Ap2pctl: ")
        self.assertRegex(done.stderr, pattern)
        self.assertRegex(done.stderr, r"(?m)^  next: .*" + next_pattern)
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def test_the_drop_in(self):
        head = git(self.repository, "rev-parse", "HEAD")
        said = self.added()
        self.assertEqual((said["schema"], said["id"], said["commit"]), ("p2pd.catalogue-addition/1", f"my-fork/{self.branch}", head))
        table = json.loads(self.drop_in.read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(table)
        entry = table["entries"][0]
        self.assertEqual(entry["repository"], f"file://{self.repository}")
        self.assertEqual((entry["enabled"], entry["branch"], entry["commit"], entry["base_version"]), (False, self.branch, head, VERSION))
        self.assertEqual(entry["runfile"], {"version": VERSION, "path": self.path, "sha256": SUM, "bytes": 4_000})
        self.assertEqual(table["runfile_hosts"], [self.web.url])
        self.assertIn("plain http", " ".join(table["about"]))
        self.assertNotIn("registry_dwords_forbidden", entry)
        listed = self.entries()[said["id"]]
        self.assertEqual((listed["enabled"], listed["fit"]), (False, "candidate"))
        self.assertEqual(list(self.scratch.glob("p2pctl-source-*")), [])

    def test_it_cannot_be_enabled_before_a_person_has_filled_it_in(self):
        self.added()
        table = json.loads(self.drop_in.read_text())
        entry = table["entries"][0]
        entry["enabled"] = True
        filled = [("architectures", {"Ada": "unknown"}), ("kernel", {"min": "4.15"}), ("compiler", {}), ("compat", []), ("module_options", {})]
        for key, value in filled:
            write(self.drop_in, json.dumps(table))
            self.assertRegex(self.ctl().stderr, "enabled without")
            entry[key] = value
        write(self.drop_in, json.dumps(table))
        self.assertEqual(self.entries()[entry["id"]]["fit"], "fits")

    def test_for_people(self):
        done = self.add("--id", f"other.name/{self.branch}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"\Aother\.name/{self.branch} as a candidate, not enabled: {self.tree}/etc/p2pd/")
        self.assertRegex(done.stdout, r"(?m)^ next +review .*\"enabled\": true")

    def test_a_tag_of_the_name_does_not_count(self):
        head = git(self.repository, "rev-parse", "HEAD")
        git(self.repository, "tag", self.branch, "main")
        git(self.repository, "update-ref", f"refs/other/refs/heads/{self.branch}", "main")
        self.assertEqual(self.added()["commit"], head)

    def test_only_a_tag(self):
        git(self.repository, "tag", "tagged")
        self.assert_refused(self.add(branch="tagged"), 'no branch "tagged"', "git ls-remote --heads")

    def test_branches_that_are_not_there(self):
        for branch in ("none", "p2p", VERSION + "-p2", "main2"):
            with self.subTest(branch):
                self.assert_refused(self.add(branch=branch), f'no branch "{branch}"')

    def test_names_that_cannot_be(self):
        for branch in ("a/b", "*", "a b", "..", ".x", "ü", "a\nb", "refs/heads/main", "x" * 200):
            with self.subTest(branch):
                self.assert_refused(self.add(branch=branch), "has characters|no id")
        for id_ in ("", "x", "x/other", f"a/b/{self.branch}", f"../{self.branch}", f"/{self.branch}", f".x/{self.branch}"):
            if id_:
                with self.subTest(id_):
                    self.assert_refused(self.add("--id", id_), "cannot be the entry's id")
        for host in ("ftp://x", "http://x/path", "x", "file://x", "https://me:pw@x"):
            with self.subTest(host):
                done = self.add(hosts=[host])
                self.assert_refused(done, "runfile_hosts|user name", "") if "next" in done.stderr else self.assertEqual(done.returncode, 1)
                self.assertNotIn("pw", done.stderr)

    def test_repositories_that_cannot_be(self):
        (self.scratch / "plain").mkdir()
        for repository in ("http://127.0.0.1/x", "ssh://x/y", "git@github.com:a/b", "ext::sh -c id", self.scratch / "none",
                           "--upload-pack=touch /tmp/x"):
            with self.subTest(repository):
                done = self.add(repository=repository)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(differences(picture(self.tree), self.before), "")
        self.assert_refused(self.add(repository=self.scratch / "plain"), "ls-remote", "Check the address")

    def test_version_mk(self):
        git(self.repository, "checkout", "--quiet", "-B", "missing")
        git(self.repository, "rm", "--quiet", "version.mk")
        git(self.repository, "commit", "--quiet", "--message", "x")
        self.assertRegex(self.add(branch="missing").stderr, "has no file version.mk")
        git(self.repository, "checkout", "--quiet", "-B", "link")
        (self.repository / "version.mk").symlink_to("/etc/passwd")
        git(self.repository, "add", "--all")
        git(self.repository, "commit", "--quiet", "--message", "x")
        self.assertRegex(self.add(branch="link").stderr, "has no file version.mk")
        (self.repository / "version.mk").unlink()
        for n, content in enumerate(("", "junk", b"\xff\x00\xfe" * 1000, "NVIDIA_VERSION = $(shell id)\n", "NVIDIA_VERSION = ../..\n",
                                     "NVIDIA_VERSION = 580.1\nNVIDIA_VERSION = 580.2\n")):
            with self.subTest(content):
                self.commit(f"junk{n}", content)
                self.assert_refused(self.add(branch=f"junk{n}"), r"branch junk\d: version\.mk (has no|does not name)")
        self.assertEqual(differences(picture(self.tree), self.before), "")

    def test_before_575(self):
        self.commit("old", "NVIDIA_VERSION = 565.77\n")
        self.publish("/XFree86/Linux-x86_64", "565.77")
        self.added(branch="old")
        entry = json.loads((self.tree / "etc/p2pd/catalogue.d/my-fork-old.json").read_text())["entries"][0]
        self.assertEqual(entry["registry_dwords_forbidden"], {"RMForceP2PType": 1})

    def test_the_other_tree_and_the_other_host(self):
        other = Web()
        self.addCleanup(other.close)
        sum_path = self.path + ".sha256sum"
        del self.web.routes[sum_path]
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
        write(self.drop_in.with_name(f"a-{self.branch}.json"), json.dumps({"schema": "p2pd.catalogue/1", "entries": []}))
        self.before = picture(self.tree)
        self.assert_refused(self.add("--id", f"a/{self.branch}"), "exists, and is not overwritten")
        self.assert_refused(self.add("--id", SHIPPED[0]["id"], branch=SHIPPED[0]["branch"]), "already")

    def bad_host(self, pattern, sum_route=None, run_route=None):
        """A bad answer for the sum or the runfile: an error that says so."""
        if sum_route:
            self.web.routes[self.path + ".sha256sum"] = sum_route
        if run_route:
            self.web.routes[self.path] = run_route
        self.assertRegex(self.refused_by_proxy().stderr, pattern)

    def refused_by_proxy(self):
        """Only our host can be reached: the catalogue's own are behind a proxy that is not there."""
        done = self.add(env={"https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(differences(picture(self.tree), self.before), "")
        return done

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
        self.bad_host("does not tell its size", run_route=lambda r: r.say(200, b"x" * 10, Content_Length=None))

    def test_nothing_is_published(self):
        self.web.routes.clear()
        self.bad_host(r"127\.0\.0\.1|proxy|no runfile")

    def test_stop(self):
        self.web.routes[self.path + ".sha256sum"] = stall(b"abc", 1)
        scratch = self.scratch / "tmp"
        scratch.mkdir()
        child = subprocess.Popen([P2PCTL, "catalogue", "add", str(self.repository), self.branch, "--runfile-host", self.web.url,
                                  "--root", str(self.tree)], stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, "TMPDIR": str(scratch)})
        for _ in range(400):
            if self.web.asked:
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        words = child.communicate(timeout=20)[1]
        self.assertEqual(child.returncode, 1)
        self.assertRegex(words, "asked to stop")
        self.assertEqual(list(scratch.iterdir()), [])
        self.assertEqual(differences(picture(self.tree), self.before), "")

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
