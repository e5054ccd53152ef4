#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""second_swap_test.py DIR: a driver that p2pd installed is replaced with another one, in a tree made by `root`. Needs root.

A run that fails, late or early, killed or not, restores the driver of the run before it completely; revert restores the state
before both. Prints "ok NAME" or "FAIL NAME" a line; DIR is not changed.
"""
import os
import shutil
import sys

sys.dont_write_bytecode = True
from install_test import REST, play, t  # noqa: E402
from world_tree import OLDER, VERSION  # noqa: E402

OTHER_KERNEL = "6.1.0-1-other"


def swap(version, by="dkms"):
    """All steps of a swap to a driver of the catalogue."""
    entry = {"entry": f"driver-world/{version}-p2p"}
    return [*((name, entry) for name in ("driver-runfile", "driver-source", "driver-build", "driver-userspace")),
            ("driver-modules", {**entry, "by": by}), *REST]


def manifest(tree):
    return tree.file("/var/lib/nvidia/log").read_text().split("\n")[0]


def swapped(tree, name, steps):
    status, run = tree.apply(steps)
    t(name, status == 0 and run.get("result") == "done", tree.said)


def brings_back(tree, name, steps, first_kill=None):
    """Checks that a run that fails in its last step leaves the earlier result; killed after `first_kill` seconds, then later."""
    before, kills, status = tree.snapshot(), 0, -9
    plan = tree.plan(steps, True, {"on_failure": "revert"})
    while status == -9:
        late = first_kill is None or kills == 40
        status, run = tree.p2pctl("apply", plan, **({} if late else {"killed_after": first_kill + 0.7 * kills}))
        kills += status == -9
    lines = tree.differences(before)
    t(name, status == 1 and run.get("result") == "failed" and (first_kill is None or kills > 2) and not lines, f"{tree.said}{lines}")


def with_other_kernel(tree):
    folder = tree.file(f"/lib/modules/{OTHER_KERNEL}")
    folder.mkdir()
    for name in ("build", "source"):
        (folder / name).symlink_to(os.readlink(tree.file(f"/lib/modules/{tree.kernel}/{name}")))
    tree.run("depmod", OTHER_KERNEL)
    tree.file(f"/boot/vmlinuz-{OTHER_KERNEL}").touch()


def by_dkms(tree):
    before = tree.snapshot()
    swapped(tree, "a first swap", swap(OLDER))
    brings_back(tree, "a second that fails after the user space brings the first back", swap(VERSION)[:4])
    brings_back(tree, "one that fails at its end brings all of it back", swap(VERSION))
    brings_back(tree, "so does one without DKMS", swap(VERSION, "modules_install"))
    brings_back(tree, "so does one that was killed on the way", swap(VERSION), 1)
    swapped(tree, "a second swap", swap(VERSION))
    t("its user space is there", manifest(tree) == VERSION)
    brings_back(tree, "a third, to the first one's driver, brings the second back", swap(OLDER))
    status, _ = tree.p2pctl("revert")
    lines = tree.differences(before)
    t("revert brings back what was there before both", status == 0 and not lines, f"{tree.said}{lines}")
    kept = [path.name for path in tree.path.glob("var/lib/p2pd/*") if path.name.startswith(("before-", "initramfs"))]
    t("nothing is kept any more", not kept, kept)


def by_hand(tree):
    """Past a module of unknown origin; and the same driver for a kernel that was installed since."""
    odd = next(tree.file(f"/lib/modules/{tree.kernel}/kernel").rglob("*.ko"))
    theirs = tree.file(f"/lib/modules/{tree.kernel}/updates/nvidia.ko")
    theirs.parent.mkdir()
    shutil.copy(odd, theirs)
    tree.run("depmod", tree.kernel)
    before = tree.snapshot()
    swapped(tree, "a first swap without DKMS", swap(OLDER, "modules_install")[:5])
    ours = tree.run("modinfo", "-k", tree.kernel, "-F", "filename", "nvidia").strip()
    t("takes precedence over a module of others, which stays", ours.endswith("/updates/p2pd/nvidia.ko") and theirs.exists(), ours)
    brings_back(tree, "a second by DKMS, which moves that module aside, brings both back", swap(VERSION)[:5])
    first = tree.snapshot()
    with_other_kernel(tree)
    brings_back(tree, "so does one of the same driver for another kernel", swap(OLDER, "modules_install")[:5])
    tree.file(f"/boot/vmlinuz-{OTHER_KERNEL}").unlink()
    shutil.rmtree(tree.file(f"/lib/modules/{OTHER_KERNEL}"))
    t("that kernel gone, the tree is as it was", not tree.differences(first), tree.differences(first))
    status, _ = tree.p2pctl("revert")
    lines = tree.differences(before)
    t("revert leaves the module of others", status == 0 and not lines, f"{tree.said}{lines}")


if __name__ == "__main__":
    sys.exit(play((by_dkms, by_hand)))
