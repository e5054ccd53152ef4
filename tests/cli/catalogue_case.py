# SPDX-License-Identifier: MIT
"""p2pctl catalogue on a machine record, with git repositories made here and a server on the loopback interface: helpers of its
tests. P2PD_BUILD: the build directory."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import jsonschema
import yaml

import cli_case
from cli_case import P2PCTL, picture, write
from forks import Repository, patch
from web import Web, stall

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "config/schema/catalogue.schema.json").read_text()))
SHIPPED = yaml.safe_load((ROOT / "config/catalogue.yaml").read_text())
# nobody listens on port 1: no test reaches the hosts of the catalogue
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("GIT_")},
               "https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}
DROP_INS = "etc/p2pd/catalogue.d"
VERSION, NEXT = "999.95.05", "999.96.01"
BRANCH = VERSION + "-p2p"
SUM = "ab" * 32


class Case(cli_case.Case):
    RECORD = "rtx4090-x2-healthy"

    def ctl(self, *words, env=None, stdin=subprocess.DEVNULL, text=True):
        return subprocess.run([P2PCTL, "catalogue", *map(str, words), "--root", str(self.tree)], stdin=stdin,
                              capture_output=True, text=text, timeout=120, env={**ENVIRONMENT, **(env or {})})

    def said(self, *words, **more):
        """The JSON document of a verb that succeeds."""
        return self.document(self.ctl(*words, "--json", **more))

    def document(self, done):
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

    def tables(self, file):
        """Tables of a drop-in, which must match the schema."""
        tables = yaml.safe_load(file.read_text())
        SCHEMA.validate(tables)
        return tables

    def assert_refused(self, done, pattern, next_pattern=None, code=1):
        """Checks that it fails with this text, and has changed nothing."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"(?m)^p2pctl: ")
        self.assertRegex(done.stderr, pattern)
        if next_pattern:
            self.assertRegex(done.stderr, r"(?m)^  next: .*" + next_pattern)
        self.assert_unchanged()


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
        self.web.routes[self.path] = stall(bytes(4_000), 1_000)  # no client may read more than the beginning
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
        """And one byte of the runfile, which tells its size."""
        self.assertEqual(self.web.asked, [("GET", self.path + ".sha256sum", None), ("GET", self.path, "bytes=0-0")])
