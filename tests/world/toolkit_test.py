#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""toolkit_test.py ROOT [CASE]...: the CUDA toolkit by the real apt and dpkg, on overlays of a tree made by `root`.

Prints "ok NAME" or "FAIL NAME" a line; ROOT is not changed, and mounts and processes end with the script. Needs root.
"""
import sys

sys.dont_write_bytecode = True
from packages_test import kill_when  # noqa: E402
from archive import Archive  # noqa: E402
from world_tree import need, run_cases  # noqa: E402

TOOLKIT = ["cuda-toolkit-12-8", "cuda-nvcc-12-8", "cuda-toolkit-config-common"]
NVCC = "/usr/local/cuda-12.8/bin/nvcc"
LISTS = "/var/lib/p2pd/cuda-toolkit-12-8.d"


def lists(tree):
    """Package lists of each run."""
    return sorted(tree.file(LISTS).glob("*/packages"))


def plan(tree, **parameters):
    return tree.plan([("cuda-toolkit", {"version": "12-8", **parameters})])


def apply(tree, changed=True, **parameters):
    code, told = tree.p2pctl("apply", plan(tree, **parameters))
    need(code == 0 and told.get("changed") == changed, f"apply, changed {changed}: {code} {told}")


def same(tree, without=()):
    tree.same(when=["packages"], without=without)
    need(not lists(tree), "the list of packages is still there")


def revert(tree):
    code, told = tree.p2pctl("revert")
    need(code == 0, f"revert: {code} {told}")
    same(tree)


def refuses(tree, why, *packages):
    """Checks that p2pd refuses a toolkit of another archive; nothing changes."""
    archive = Archive(tree)
    for fields in packages:
        archive.lists({"Package": "cuda-toolkit-99-9", **fields})
    archive.update()
    code, told = tree.p2pctl("apply", plan(tree, version="99-9"))
    need(code == 1 and why in told["reason"], f"{code} {told}")
    same(tree, Archive.PATHS)


def case_apply_again_revert(tree):
    before = tree.installed()
    for changed in (True, False):
        apply(tree, changed, host_compiler="/usr/bin/gcc-12")
    need(tree.installed() - before == set(TOOLKIT), f"it brought {tree.installed() - before}")
    need([word for file in lists(tree) for word in file.read_text().split()] == [word for name in sorted(TOOLKIT) for word in ("purge", name)], "another list")
    said = tree.run("sh", "-c", ". /etc/profile && command -v nvcc && nvcc && echo $CUDAHOSTCXX")
    need(said.startswith(NVCC) and "release 12.8" in said and said.endswith("/usr/bin/gcc-12\n"), said)
    revert(tree)
    need(tree.installed() == before, f"it took {before - tree.installed()}")


def case_what_was_left_of_one_stays(tree):
    apply(tree)
    revert(tree)


def case_somebody_needs_it_meanwhile(tree):
    apply(tree)
    tree.run("sh", "-c", "mkdir -p /tmp/mine/DEBIAN && printf 'Package: mine\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.com>\\n"
             "Depends: cuda-nvcc-12-8\\nDescription: x\\n' >/tmp/mine/DEBIAN/control && dpkg-deb --build /tmp/mine /tmp/mine.deb && dpkg -i /tmp/mine.deb")
    code, told = tree.p2pctl("revert")
    need(code == 1 and "apt would also remove mine" in str(told), f"{code} {told}")
    need("mine" in tree.installed(), "it was taken along")
    tree.run("dpkg", "--purge", "mine")
    revert(tree)


def case_no_driver_with_it(tree):
    refuses(tree, "install cuda-drivers, which belongs to a driver", {"Depends": "cuda-drivers"}, {"Package": "cuda-drivers"})


def case_nothing_removed_for_it(tree):
    refuses(tree, "remove nsight-compute", {"Conflicts": "nsight-compute"})


def case_nothing_upgraded_for_it(tree):
    refuses(tree, "change libcudnn9-cuda-12 from ", {"Depends": "libcudnn9-cuda-12 (>= 99)"}, {"Package": "libcudnn9-cuda-12"})


def case_no_room_for_it(tree):
    refuses(tree, " MiB free, and 1073741824 are needed", {"Installed-Size": str(1 << 40)})


def case_killed(tree):
    kill_when(tree, ("apply", plan(tree)), " install ", 1)
    need(lists(tree), "no list of what comes")
    code, told = tree.p2pctl("apply", plan(tree))
    need(code == 0, f"{code} {told}")
    need(tree.installed().issuperset(TOOLKIT), "it is not complete")
    kill_when(tree, ("revert",), " remove ", 1)
    revert(tree)


def never_there(tree):
    tree.run("apt-get", "--yes", "purge", *TOOLKIT)


def configuration_left(tree):
    tree.run("apt-get", "--yes", "remove", *TOOLKIT)


if __name__ == "__main__":
    sys.exit(run_cases(globals(), never_there, configuration_left, ground_of=lambda name: "left" in name))
