#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lists_test.py ROOT [CASE]...: apt's lists are absent, stale, or of a broken source, and packages are installed all the same; overlays of
a tree made by `root`.

Prints "ok NAME" or "FAIL NAME" a line; ROOT is not changed, and mounts and processes end with the script. Needs root.
"""
import contextlib
import json
import subprocess
import sys
import urllib.request

sys.dont_write_bytecode = True
from archive import Archive  # noqa: E402
from world_tree import DRIVER_WORLD, ENTRY, need, run_cases  # noqa: E402

NVCC = {"usr/local/cuda-99.9/bin/nvcc": "#!/bin/sh\n"}
TOOLKIT = "cuda-toolkit-99-9"
BROKEN = "/etc/apt/sources.list.d/broken.list"


@contextlib.contextmanager
def served(folder):
    """Serves a folder: its URL, and a function that returns the log of requests."""
    with subprocess.Popen([DRIVER_WORLD / "serve", folder], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        try:
            yield url, lambda: [json.loads(row) for row in urllib.request.urlopen(f"{url}/-/log").read().splitlines()]
        finally:
            process.terminate()


def plan(tree):
    return tree.plan([("cuda-toolkit", {"version": "99-9"})])


def apply(tree):
    code, told = tree.p2pctl("apply", plan(tree))
    need(code == 0 and told["result"] == "done", f"{code} {told}")
    need(TOOLKIT in tree.installed(), "it is not installed")


def revert(tree):
    code, told = tree.p2pctl("revert")
    need(code == 0, f"revert: {code} {told}")
    need(TOOLKIT not in tree.installed(), "it is still there")


def user_of_apt(tree):
    return next(int(line.split(":")[2]) for line in tree.file("/etc/passwd").read_text().splitlines() if line.startswith("_apt:"))


def case_an_image_without_lists_and_a_broken_source(tree):
    Archive(tree).holds(TOOLKIT, NVCC)
    tree.file(BROKEN).write_text("deb http://127.0.0.1:9/nothing ./\ndeb [trusted=yes] file:///srv/nothing ./\n")
    tree.run("sh", "-c", "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin")
    code, told = tree.p2pctl("plan", plan(tree))
    commands = told["steps"][0]["changes"][0]["commands"]
    need(code == 0 and commands[0].endswith(" update") and commands[1].endswith(f" install {TOOLKIT}"), f"{code} {told}")
    apply(tree)
    revert(tree)


def case_stale_lists_answer_404(tree):
    archive = Archive(tree)
    with served(archive.folder) as (url, log):
        archive.at(url)
        archive.holds(TOOLKIT, NVCC)
        archive.update()
        archive.forgets()
        archive.holds(TOOLKIT, NVCC, Version="99.9-2")
        apply(tree)
        need([row for row in log() if row["status"] == 404 and row["path"].endswith("_99.9-1.deb")], log())
        need({row["uid"] for row in log()} == {user_of_apt(tree)}, f"asked by others than apt's user: {log()}")
    need(tree.run("dpkg-query", "-W", "-f", "${Version}", TOOLKIT) == "99.9-2", "another version")
    revert(tree)


def case_an_upgrade_within_the_release_is_shown_made_and_left(tree):
    archive = Archive(tree)
    archive.holds("base-of-it", {"usr/share/base": "1\n"})
    tree.run("dpkg", "--install", f"{Archive.FOLDER}/base-of-it_99.9-1.deb")
    archive.holds("base-of-it", {"usr/share/base": "2\n"}, Version="99.9-2")
    archive.holds(TOOLKIT, NVCC, Depends="base-of-it (>= 99.9-2)")
    archive.is_of(Label="Debian", Version="12.99", Suite="stable")
    archive.update()
    code, told = tree.p2pctl("plan", plan(tree), live=True)  # live: p2pctl does not ask the apt of an image
    need(code == 0 and "upgrade base-of-it from 99.9-1 to 99.9-2" in told["steps"][0]["changes"][0]["change"], f"{code} {told}")
    apply(tree)
    revert(tree)
    need(tree.run("dpkg-query", "-W", "-f", "${Version}", "base-of-it") == "99.9-2", "it was taken, too")


def case_all_that_is_in_the_way_at_once(tree):
    archive = Archive(tree)
    archive.lists({"Package": TOOLKIT, "Depends": "cuda-drivers, libcudnn9-cuda-12 (>= 99)", "Conflicts": "nsight-compute"})
    archive.lists({"Package": "cuda-drivers"})
    archive.lists({"Package": "libcudnn9-cuda-12"})
    archive.update()
    for verb in ("plan", "apply"):
        code, told = tree.p2pctl(verb, plan(tree), live=verb == "plan")
        for text in ("remove nsight-compute", "install cuda-drivers, which belongs to a driver", "change libcudnn9-cuda-12 from "):
            need(code != 0 and text in str(told), f"{verb}, {text}: {code} {told}")


def case_the_way_back_is_fetched_by_apts_own_user(tree):
    """Not by root, although the .deb files end in a folder that only root can enter."""
    source = tree.file("/etc/apt/sources.list.d/driver-world.list")
    with served(tree.file("/srv/driver-world/apt")) as (url, log):
        source.write_text(source.read_text().replace("file:///srv/driver-world/apt", url))
        tree.run("apt-get", "update")
        tree.run("apt-get", "clean")
        code, told = tree.apply([("way-back", {"entry": ENTRY})])
        need(code == 0 and told["result"] == "done", f"{code} {told}")
        asked = [row for row in log() if row["path"].endswith(".deb") and row["status"] == 200]
        need(len(asked) > 10 and {row["uid"] for row in asked} == {user_of_apt(tree)}, f"{user_of_apt(tree)}: {asked}")
    rows = json.loads(tree.file("/var/lib/p2pd/way-back/manifest.json").read_text())["packages"]
    need({row["from"] for row in rows} == {"archive"}, rows)
    owners = {path.stat().st_uid for path in tree.file("/var/lib/p2pd/way-back/debs").iterdir()}
    need(owners == {0}, f"others may write to it: {owners}")


def without_debian(tree):
    """Debian's own archive is not needed, and may be out of reach."""
    tree.file("/etc/apt/sources.list").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(run_cases(globals(), without_debian))
