#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""config/catalogue.yaml and config/kernel-table.yaml name existing things; schema and p2pctl judge drop-ins of the catalogue alike.

P2PD_BUILD names the build directory whose bin/p2pctl is asked; default: build/dev.
"""
import copy
import json
import os
import pathlib
import runpy
import subprocess
import tempfile
import unittest

from config_test import CONFIG, DROP, P2PCTL, load, put, validator

DROP_IN = {
    "schema": "p2pd.catalogue/2", "runfile_hosts": ["http://mirror.example", "file:///srv/mirror"], "releases_at": "file:///srv/releases",
    "compat_rules": {"trial": {"header": "include/linux/pci.h", "pattern": "x", "include": "pci-resize-exclude-bars.h", "why": "x"}},
    "defects": {"trial": {"text": "x", "use": "nccl", "architectures": ["Ada"], "together": ["Ada"], "grave": True, "from": "590"}},
    "branches": {"9": {"cuda": "12.8", "kernel_min": "4.15", "gcc_min": 11, "gcc_below": 16, "compat": ["trial"]}},
    "releases": {"9.9.9": {
        "commit": "1" * 40, "known": "verified", "cuda": "12.8", "kernel_min": "4.15", "gcc_min": 11, "gcc_below": 16, "compat": ["trial"],
        "runfile": {"path": "/x/9.9.9/NVIDIA-Linux-x86_64-9.9.9.run", "sha256": "1" * 64, "bytes": 1, "known": "corroborated"}},
                 "9.9.8": {"runfile": {"path": "/x/9.9.8/NVIDIA-Linux-x86_64-9.9.8.run", "known": "single-source"}}},
    "patches": {"trial/main": {
        "repository": "https://git.example/trial/modules", "also_in": ["file:///srv/git"], "branch": "main", "commit": "2" * 40,
        "known": "single-source", "base": "9.9.9", "tree": "3" * 40, "grafts": {}, "architectures": {"Ada": "reported", "Hopper": "unknown"},
        "reports": ["x"], "defects": ["trial"], "module_options": {"NVreg_A": 1, "NVreg_B": "x"}, "registry_dwords": {"A": 1},
        "registry_dwords_forbidden": {"B": 0}, "dynamic_bar1": False}},
    "allowed": {"trial/main": {"base_commit": "1" * 40, "commit": "2" * 40, "runfile_sha256": "1" * 64}},
}
RULE, DEFECT, RELEASE = ["compat_rules", "trial"], ["defects", "trial"], ["releases", "9.9.9"]
RUNFILE, PATCH, ALLOWED = [*RELEASE, "runfile"], ["patches", "trial/main"], ["allowed", "trial/main"]
FILE = [([*PATCH, key], DROP) for key in ("repository", "branch", "commit")] + [([*PATCH, "file"], "https://trial.example/1.patch")]


def drop_in(*changes):
    document = copy.deepcopy(DROP_IN)
    for path, value in changes:
        put(document, path, value)
    return document


# Drop-ins on which schema and program must agree: (path, value) put into DROP_IN, each alone, or together where it is a list
GOOD_DROP_INS = [
    [], *((([key], DROP)) for key in ("runfile_hosts", "releases_at")), (["runfile_hosts"], []), (["allowed"], {}), ([*RULE, "include"], DROP), ([*RULE, "include"], "linux/x.h"),
    *(([*RULE, "gone"], gone) for gone in (True, False)),
    *(([*DEFECT, key], DROP) for key in ("use", "architectures", "together", "grave", "from")), ([*DEFECT, "grave"], False),
    *(([*RELEASE, key], DROP) for key in ("commit", "cuda", "kernel_min", "gcc_min", "gcc_below", "compat", "runfile")), (["branches"], DROP), (["branches", "9"], {}), ([*ALLOWED, "runfile_sha256"], DROP),
    [([*RELEASE, "commit"], DROP), ([*RELEASE, "known"], DROP)], ([*RUNFILE, "sha256"], DROP), ([*RUNFILE, "bytes"], DROP),
    *(([*PATCH, key], DROP) for key in ("also_in", "commit", "tree", "grafts", "reports", "defects", "module_options", "registry_dwords",
                                        "registry_dwords_forbidden", "dynamic_bar1")),
    ([*PATCH, "architectures"], {}), ([*PATCH, "grafts"], {"9.9.8": None}), ([*PATCH, "grafts"], {"9.9.8": "3" * 40}),
    FILE, [*FILE, ([*PATCH, "sha256"], "4" * 64)], ([*ALLOWED, "commit"], "4" * 64),
]
BAD_DROP_INS = [
    (["schema"], "p2pd.catalogue/1"), (["schema"], DROP), (["schema"], 2), (["entries"], []), (["runfile_hosts"], "https://x"),
    *((["runfile_hosts"], [host]) for host in ("https://x/y", "https://", "ftp://x", "file://x", "x", 1, "")), (["releases_at"], "http://x"),
    *(([table], []) for table in ("compat_rules", "defects", "branches", "releases", "patches", "allowed")),
    *(([table], {"trial/main": 1}) for table in ("compat_rules", "defects", "branches", "releases", "patches", "allowed")),
    *(([*RULE, key], value) for key in ("header", "pattern", "why") for value in (DROP, "", 1)),
    *(([*RULE, "header"], header) for header in ("/include/x.h", "include/../x.h", ".h", "x.c")), *(([*RULE, "include"], file) for file in ("../x.h", "linux/../x.h", "net/x.h", "linux/.h", ".h")),
    ([*RULE, "all"], 1), ([*RULE, "gone"], "yes"),
    *(([*DEFECT, "text"], text) for text in (DROP, "", 1)), ([*DEFECT, "use"], "games"), ([*DEFECT, "architectures"], ["Maxwell"]),
    ([*DEFECT, "architectures"], "Ada"), ([*DEFECT, "grave"], "yes"), ([*DEFECT, "title"], "x"), (["defects", "A Defect"], {"text": "x"}),
    (["compat_rules", "A Rule"], DROP_IN["compat_rules"]["trial"]), ([*RELEASE, "known"], DROP), ([*DEFECT, "from"], "59x"), (["branches", "9", "runfile"], {}), (["branches", "9", "cuda"], "12"), (["branches", "nine"], {}),
    *(([*RELEASE, "commit"], commit) for commit in (None, "1" * 39, "1" * 64, "g" * 40)), ([*RELEASE, "known"], "single source"),
    *(([*RELEASE, "cuda"], version) for version in ("12", "12.8.1", 12)), ([*RELEASE, "kernel_min"], "4"), ([*RELEASE, "kernel_min"], "v4.15"),
    *(([*RELEASE, key], value) for key in ("gcc_min", "gcc_below") for value in (-1, 1001, "12")), ([*RELEASE, "compat"], "trial"),
    ([*RELEASE, "compat"], ["A Rule"]), ([*RELEASE, "version"], "9.9.9"), (["releases", "9.9.7"], {"runfile": {}}),
    *(([*RUNFILE, key], DROP) for key in ("path", "known")), *(([*RUNFILE, "path"], path) for path in ("x.run", "/x y.run", "/.run", "/x", None)),
    *(([*RUNFILE, "sha256"], sum_) for sum_ in (None, "", "1" * 40, "G" * 64)), *(([*RUNFILE, "bytes"], size) for size in (0, -1, "1", None)),
    ([*RUNFILE, "known"], "third_party_doc"), ([*RUNFILE, "version"], "9.9.9"),
    *(([*PATCH, key], DROP) for key in ("repository", "branch", "known", "base", "architectures")),
    *(([*PATCH, "repository"], address) for address in ("git@x:y", "http://x/y", "file://x", "", 'https://x/"y', "https://x/y\\z", "https://x/\ty")), ([*PATCH, "also_in"], ["x"]), ([*PATCH, "branch"], ""),
    *(([*PATCH, "commit"], commit) for commit in (None, "2" * 12, "2" * 64, "G" * 40)), ([*PATCH, "sha256"], "4" * 64), ([*PATCH, "known"], "maybe"),
    ([*PATCH, "file"], "https://trial.example/1.patch"), [*FILE, ([*PATCH, "branch"], "main")], [*FILE, ([*PATCH, "commit"], "2" * 40)],
    [*FILE, ([*PATCH, "sha256"], "4" * 40)], ([*PATCH, "base"], "9"), ([*PATCH, "tree"], "3" * 12), ([*PATCH, "grafts"], ["9.9.8"]),
    ([*PATCH, "grafts"], {"9.9.8": "3" * 12}), ([*PATCH, "grafts"], {"new": None}), ([*PATCH, "architectures"], {"Maxwell": "unknown"}),
    ([*PATCH, "architectures"], {"Ada": "works"}), ([*PATCH, "architectures"], ["Ada"]), ([*PATCH, "reports"], "x"), ([*PATCH, "reports"], [""]),
    ([*PATCH, "defects"], ["A Defect"]), ([*PATCH, "module_options"], {"NVreg_A": True}), ([*PATCH, "registry_dwords"], {"A": "1"}),
    ([*PATCH, "registry_dwords_forbidden"], {"A": -1}), ([*PATCH, "dynamic_bar1"], 1), ([*PATCH, "enabled"], True),
    (["patches"], {"main": DROP_IN["patches"]["trial/main"]}), (["patches"], {"a/b/c": DROP_IN["patches"]["trial/main"]}),
    *(([*ALLOWED, key], value) for key in ("base_commit", "commit") for value in (DROP, "", None)), *(([*ALLOWED, "runfile_sha256"], value) for value in ("", None)), ([*ALLOWED, "by"], "me"),
    (["allowed", "no/entry"], {"commit": "2" * 40}),
]
# Faults that only the program can find
PROGRAM_ONLY_DROP_INS = [
    ([*RELEASE, "compat"], ["none"]), ([*PATCH, "defects"], ["none"]), ([*PATCH, "base"], "9.9.7"), ([*PATCH, "grafts"], {"9.9.7": None}),
    ([*PATCH, "grafts"], {"9.9.9": None}), (["releases", "9.9.8", "compat"], ["none"]),
    (["releases", "570.86.16"], DROP_IN["releases"]["9.9.9"]), (["patches", "tinygrad/565.57.01-p2p"], DROP_IN["patches"]["trial/main"]),
    (["compat_rules", "pci-resize-exclude-bars"], DROP_IN["compat_rules"]["trial"]),
]


class Catalogue(unittest.TestCase):
    def setUp(self):
        self.catalogue = load(CONFIG / "catalogue.yaml")
        self.releases, self.patches = self.catalogue["releases"], self.catalogue["patches"]

    def with_runfile(self):
        return [(version, release) for version, release in self.releases.items() if "runfile" in release]

    def test_ids_say_fork_and_branch(self):
        for id_, patch in self.patches.items():
            self.assertEqual(id_, f"{patch['repository'].split('/')[-2]}/{patch['branch']}")

    def test_what_is_named_is_there_and_used(self):
        for kind, table, rows in (("compat", "compat_rules", [*self.releases.values(), *self.catalogue["branches"].values()]),
                                  ("defects", "defects", self.patches.values())):
            self.assertEqual({name for row in rows for name in row.get(kind, [])}, set(self.catalogue[table]))
        self.assertEqual({version.split(".")[0] for version in self.releases}, set(self.catalogue["branches"]))
        used = {version for patch in self.patches.values() for version in (patch["base"], *patch.get("grafts", {}))}
        self.assertEqual(used, set(self.releases))
        self.assertNotIn("allowed", self.catalogue, "a machine's own")

    def test_driver_world_has_versions_of_its_own(self):
        world = runpy.run_path(str(CONFIG.parent / "tests/sim/driver_world/make"))
        for version in (*world["VERSIONS"], *world["DISTRIBUTED"], *world["NEW"]):
            self.assertNotIn(version, self.releases, "no drop-in may contradict it")

    def test_compat_headers_are_there_and_used(self):
        here = {str(file.relative_to(CONFIG / "compat")) for file in (CONFIG / "compat").rglob("*.h")}
        self.assertEqual({rule["include"] for rule in self.catalogue["compat_rules"].values()}, here)

    def test_compat_headers_say_nothing_outside_of_a_kernel(self):
        """kbuild uses these flags, and no kernel headers, to ask the compiler for the options that it supports."""
        for file in (CONFIG / "compat").rglob("*.h"):
            words = ["gcc", "-nostdinc", "-I", CONFIG / "plans", "-Werror", "-D__KERNEL__", "-include", file, "-E", "-P", "-x", "c", "/dev/null"]
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, ""), f"{file}: {done.stderr}")

    def test_runfile_is_of_the_release(self):
        for version, release in self.with_runfile():
            self.assertTrue(release["runfile"]["path"].endswith(f"/{version}/NVIDIA-Linux-x86_64-{version}.run"), version)

    def test_what_two_sources_have_is_pinned(self):
        for version, release in self.with_runfile():
            self.assertTrue(release["runfile"]["known"] == "single-source" or "sha256" in release["runfile"], version)
        for version, release in self.releases.items():
            self.assertEqual("known" in release, "commit" in release, version)

    def test_no_report_of_a_graft(self):
        """A release for which a fork has a patch gets no graft of that fork's patch for another release."""
        for id_, patch in self.patches.items():
            self.assertNotIn(patch["base"], patch.get("grafts", {}), id_)

    def test_dwords_are_of_their_time(self):
        for id_, patch in self.patches.items():  # 1 was the mailbox until the values changed at 575
            for version in (patch["base"], *patch.get("grafts", {})):
                old = int(version.split(".")[0]) < 575
                self.assertEqual("RMForceP2PType" in patch.get("registry_dwords_forbidden", {}), old, f"{id_} on {version}")


class KernelTable(unittest.TestCase):
    def setUp(self):
        self.table, self.catalogue = load(CONFIG / "kernel-table.yaml"), load(CONFIG / "catalogue.yaml")

    def test_a_table_that_is_filled(self):
        row = {"source": "fork/main", "tree": "1" * 40, "kernels": {
            "6.1.192": "builds with pci-resize-exclude-bars, other", "7.2.1": "fails: nv.c:1: error: too few", "6.12.117": "builds"}}
        kernel = {"release": "6.1.0-9-amd64", "distribution": "Debian 12"}
        validator("kernel-table").validate({"schema": "p2pd.kernel-table/1", "kernels": {"6.1.192": kernel}, "releases": {"570.86.16": row}})

    def test_what_is_named_is_there(self):
        for version, row in self.table["releases"].items():
            self.assertLessEqual(set(row["kernels"]), set(self.table["kernels"]), version)
            rules = {rule for said in row["kernels"].values() if said.startswith("builds with") for rule in said[len("builds with "):].split(", ")}
            self.assertLessEqual(rules, set(self.catalogue["compat_rules"]), version)

    def test_what_was_built_is_what_is_pinned(self):
        for version, row in self.table["releases"].items():
            if patch := self.catalogue["patches"].get(row["source"]):
                pinned = {patch["base"]: patch.get("tree"), **patch.get("grafts", {})}
                self.assertIn(version, pinned)
                self.assertIn(row["tree"], (pinned[version] or row["tree"],), version)


@unittest.skipUnless(P2PCTL.exists() or "P2PD_BUILD" in os.environ, f"no {P2PCTL}; P2PD_BUILD names another build")
class DropIns(unittest.TestCase):
    def catalogue(self, document):
        """Exit status of `p2pctl catalogue` with this drop-in, which an error names."""
        with tempfile.TemporaryDirectory() as root:
            file = pathlib.Path(root, "etc/p2pd/catalogue.d/trial.yaml")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(document, indent=1))
            done = subprocess.run([P2PCTL, "catalogue", "--root", root], capture_output=True, text=True, timeout=60)
        if done.returncode:
            self.assertRegex(done.stderr, r"^p2pctl: /etc/p2pd/catalogue\.d/trial\.yaml: ")
        return done.returncode

    def test_schema_and_program_agree_on_drop_ins(self):
        schema = validator("catalogue")
        for good, changes in [*((True, one) for one in GOOD_DROP_INS), *((False, one) for one in BAD_DROP_INS)]:
            document = drop_in(*(changes if isinstance(changes, list) else [changes]))
            with self.subTest(changes=changes):
                self.assertEqual((schema.is_valid(document), self.catalogue(document)), (good, 0 if good else 1))

    def test_schema_rejects_no_drop_in_that_only_the_program_knows(self):
        schema = validator("catalogue")
        for changes in PROGRAM_ONLY_DROP_INS:
            with self.subTest(changes=changes):
                self.assertEqual((schema.is_valid(drop_in(changes)), self.catalogue(drop_in(changes))), (True, 1))


if __name__ == "__main__":
    unittest.main()
