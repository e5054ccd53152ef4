#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""toolkit_test.py ROOT [CASE]...: the CUDA toolkit by the real apt and dpkg, on overlays of a tree made by `root`.

Prints "ok NAME" or "FAIL NAME" a line; ROOT stays as it is, and what was mounted or started ends with it. Needs root.
P2PD_BUILD names the build directory whose bin/p2pctl is used; build/dev unless told.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import packages_test  # noqa: E402
from packages_test import Failed, kill_when, need  # noqa: E402

TOOLKIT = ["cuda-toolkit-12-8", "cuda-nvcc-12-8", "cuda-toolkit-config-common"]
NVCC = "/usr/local/cuda-12.8/bin/nvcc"
LIST = "var/lib/p2pd/cuda-toolkit-12-8"
ARCHIVE, SOURCE = "srv/archive", "etc/apt/sources.list.d/archive.list"


class Tree(packages_test.Tree):
    def plan(self, *steps):
        given = dict(zip(("version", "host_compiler"), steps or ["12-8"]))
        policy = {"attempts": 1, "on_failure": "keep", "reboot": "external"}
        row = {"state": "toolkit", "title": "toolkit", "check": "cuda-toolkit", "fix": "cuda-toolkit", "with": given}
        (self.work / "plan.json").write_text(json.dumps({"name": "test", "title": "test", "policy": policy, "steps": [row]}))

    def same(self, without=()):
        super().same(without)
        need(not (self.path / LIST).exists(), "the list of packages is still there")

    def refuses(self, why):
        """Another archive has a toolkit that apt must not install; nothing changes."""
        (self.path / SOURCE).write_text(f"deb [trusted=yes] file:///{ARCHIVE} ./\n")
        self.run("apt-get", "update", "-o", f"Dir::Etc::sourcelist=/{SOURCE}", "-o", "Dir::Etc::sourceparts=/dev/null", "-o",
                 "APT::Get::List-Cleanup=0")
        self.plan("99-9")
        code, told = self.p2pctl("apply", "PLAN")
        need(code == 1 and why in told["reason"], f"{code} {told}")
        self.same([f"/{ARCHIVE}", f"/{SOURCE}"])

    def archive_has(self, **fields):
        fields = {"Package": "cuda-toolkit-99-9", "Architecture": "amd64", "Version": "99.9-1", "Maintainer": "x <x@example.com>",
                  "Filename": "./none.deb", "Size": "1", "SHA256": "0" * 64, "Description": "x", **fields}
        (self.path / ARCHIVE).mkdir(exist_ok=True)
        with (self.path / ARCHIVE / "Packages").open("a") as file:
            file.write("\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()))


def case_apply_again_revert(tree):
    before = tree.installed()
    tree.plan("12-8", "/usr/bin/gcc-12")
    for changed in (True, False):
        code, told = tree.p2pctl("apply", "PLAN")
        need(code == 0 and told.get("changed") == changed, f"apply, changed {changed}: {code} {told}")
    need(tree.installed() - before == set(TOOLKIT), f"it brought {tree.installed() - before}")
    need((tree.path / LIST).read_text().split() == [word for name in sorted(TOOLKIT) for word in ("purge", name)], "another list")
    said = tree.run("sh", "-c", ". /etc/profile && command -v nvcc && nvcc && echo $CUDAHOSTCXX")
    need(said.startswith(NVCC) and "release 12.8" in said and said.endswith("/usr/bin/gcc-12\n"), said)
    tree.revert()
    need(tree.installed() == before, f"it took {before - tree.installed()}")
    tree.same()


def case_what_was_left_of_one_stays(tree):
    tree.revert()
    tree.same()
    tree.apply("12-8")
    tree.revert()
    tree.same()


def case_somebody_needs_it_meanwhile(tree):
    tree.apply("12-8")
    tree.run("sh", "-c", "mkdir -p /tmp/mine/DEBIAN && printf 'Package: mine\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.com>\\n"
             "Depends: cuda-nvcc-12-8\\nDescription: x\\n' >/tmp/mine/DEBIAN/control && dpkg-deb --build /tmp/mine /tmp/mine.deb && dpkg -i /tmp/mine.deb")
    code, told = tree.p2pctl("revert")
    need(code == 1 and "apt would also remove mine" in str(told), f"{code} {told}")
    need("mine" in tree.installed(), "it was taken along")
    tree.run("dpkg", "--purge", "mine")
    tree.revert()
    tree.same()


def case_no_driver_with_it(tree):
    tree.archive_has(Depends="cuda-drivers")
    tree.archive_has(Package="cuda-drivers")
    tree.refuses("install cuda-drivers, which belongs to a driver")


def case_nothing_removed_for_it(tree):
    tree.archive_has(Conflicts="nsight-compute")
    tree.refuses("remove nsight-compute")


def case_nothing_upgraded_for_it(tree):
    tree.archive_has(Depends="libcudnn9-cuda-12 (>= 99)")
    tree.archive_has(Package="libcudnn9-cuda-12")
    tree.refuses("change libcudnn9-cuda-12 from ")


def case_killed(tree):
    tree.plan()
    kill_when(tree, ("apply", "PLAN"), " install ", 1)
    need((tree.path / LIST).exists(), "no list of what comes")
    code, told = tree.p2pctl("apply", "PLAN")
    need(code == 0, f"{code} {told}")
    need(tree.installed().issuperset(TOOLKIT), "it is not complete")
    kill_when(tree, ("revert",), " remove ", 1)
    tree.revert()
    tree.same()


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / "srv/driver-world").is_dir():
        raise SystemExit(f"toolkit_test.py: {root} is no tree made by root")
    if "TOOLKIT_TEST_WORK" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="p2pd-toolkit.") as work:
            return subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv], check=False,
                                  env={**os.environ, "TOOLKIT_TEST_WORK": work}).returncode
    work, failed = os.environ["TOOLKIT_TEST_WORK"], 0
    before = {}
    for verb in ("purge", "remove"):  # as if it had never been there; with its configuration left
        before[verb] = Tree(work, [root], root)
        before[verb].run("apt-get", "--yes", verb, *TOOLKIT)
    for name, case in sorted(globals().items()):
        if not name.startswith("case_") or (len(sys.argv) > 2 and name[5:] not in sys.argv[2:]):
            continue
        lower = before["remove" if "left" in name else "purge"]
        tree = Tree(work, [lower.upper, root], lower.path)
        try:
            case(tree)
            print(f"ok {name[5:].replace('_', ' ')}", flush=True)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            failed = 1
            print(f"FAIL {name[5:].replace('_', ' ')}\n    " + str(error).replace("\n", "\n    "), flush=True)
        tree.close()
    for tree in before.values():
        tree.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
