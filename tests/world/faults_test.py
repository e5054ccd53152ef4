#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults_test.py ROOT [CASE]...: faults around a driver swap are named, undone and recovered from. Needs root; ROOT is not changed.

Each case puts a fault into an overlay of a tree made by `root` and runs the steps that it affects, under the policy of shipped plans
(on_failure: revert). The run must fail with a message about that fault and a next command, and leave every path and the old driver
unchanged; without the fault the same plan must complete, and be undone. Prints "ok NAME" or "FAIL NAME" a case.

Tested elsewhere: a lock of apt that another process holds, which is named (packages_test.py: a lock is waited for; unit tests: package
locks); held packages in the pattern (packages_test.py: all cases, lived_in() holds two); a download that resumes where it was cut
(staging_test.py, download_test.py); a full disk in the middle of a build or a download (driver_build_test.cpp, download_test.py).
"""
import contextlib
import subprocess
import sys
import urllib.request

import yaml

sys.dont_write_bytecode = True
from archive import kernel_package  # noqa: E402
from world_tree import DRIVER_WORLD, ENTRY, VERSION, Cases, Tree, arguments, need  # noqa: E402

OF_ENTRY = {"entry": ENTRY}
RUNFILE, SOURCE, BUILD, BACKUP, PINS, PURGE, USERSPACE = (
    (name, OF_ENTRY) for name in ("driver-runfile", "driver-source", "driver-build", "way-back", "driver-pins", "packaged-driver",
                                  "driver-userspace"))
MODULES = ("driver-modules", {**OF_ENTRY, "by": "dkms"})
NOUVEAU, INITRAMFS = ("nouveau-blacklist", {}), ("initramfs", {})
WORLD = "/srv/driver-world"
DROP_IN = "/etc/p2pd/catalogue.d/driver-world.yaml"
PATH = f"/tesla/{VERSION}/NVIDIA-Linux-x86_64-{VERSION}.run"


def refused(tree, steps, *texts):
    """Checks that the run fails with these texts and a next command, and changes nothing."""
    before = tree.snapshot()
    status, told = tree.apply(steps, live=True, policy={"on_failure": "revert"})
    need(status == 1 and told.get("result") == "failed", f"{status} {told}")
    for text in (*texts, "next: "):
        need(text in told["reason"], f"not said: {text}\n{told['reason']}")
    tree.same(before, when=["apt"])


def goes_on(tree, steps):
    """Runs the same plan without the fault, and reverts it."""
    before = tree.snapshot()
    status, told = tree.apply(steps, live=True, policy={"on_failure": "revert"})
    need(status == 0 and told["result"] == "done", f"without the fault: {status} {told}")
    status, told = tree.p2pctl("revert", live=True)
    need(status == 0 and told["result"] == "reverted", f"revert: {status} {told}")
    tree.same(before, when=["apt"])


@contextlib.contextmanager
def away(tree, path):
    """Moves a file away meanwhile."""
    tree.run("mv", path, "/srv/away")
    yield
    tree.run("mv", "/srv/away", path)


@contextlib.contextmanager
def mounted(tree, text):
    """Runs shell text with the mounts of each command in the tree."""
    tree.mounts = " && " + text
    yield
    tree.mounts = ""


def full(tree, folder, size):
    """Gives `folder` little room: writes go to a small file system."""
    small = f'"$dir/media"/{folder.replace("/", "-")}'
    return mounted(tree, f'mount -t tmpfs -o size={size} tmpfs "$dir/media" && mkdir {small}-u {small}-w && '
                         f'mount -t overlay overlay -o lowerdir="$dir{folder}",upperdir={small}-u,workdir={small}-w "$dir{folder}"')


@contextlib.contextmanager
def catalogue(tree, change=None, name="driver-world"):
    """Installs another drop-in of the catalogue."""
    before = tree.file(DROP_IN).read_text()
    table = yaml.safe_load(tree.file(f"{WORLD}/catalogue/{name}.yaml").read_text())
    tree.file(DROP_IN).write_text(yaml.safe_dump({**table, **(change or {})}))
    yield
    tree.file(DROP_IN).write_text(before)


@contextlib.contextmanager
def server(tree):
    """Serves the world's files over HTTP, as the first host of the catalogue; yields a function that requests faults."""
    with subprocess.Popen([DRIVER_WORLD / "serve", tree.file(f"{WORLD}/http")], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        try:
            with catalogue(tree, {"runfile_hosts": [url]}):
                yield lambda words: urllib.request.urlopen(f"{url}/-/{words}").read().decode()
        finally:
            process.terminate()


def case_no_network(tree):
    with away(tree, f"{WORLD}/http"):
        refused(tree, [SOURCE, RUNFILE], f"the runfile of {VERSION} could not be fetched: file://{WORLD}/http{PATH}", "Give the plan a mirror")
    goes_on(tree, [SOURCE, RUNFILE])
    with catalogue(tree, {"runfile_hosts": ["http://127.0.0.1:9"]}):
        refused(tree, [RUNFILE], f"could not be fetched: http://127.0.0.1:9{PATH}", "Give the plan a mirror")
    with away(tree, f"{WORLD}/git"):
        refused(tree, [RUNFILE, SOURCE], f"NVIDIA's release {VERSION} could not be fetched", "Give the plan a mirror that has it")
    goes_on(tree, [SOURCE])


def case_half_a_download(tree):
    with server(tree) as ask:
        ask(f"fault?path={PATH}&cut=0")
        refused(tree, [RUNFILE], "could not be fetched", PATH, "Give the plan a mirror")
        ask("clear")
        goes_on(tree, [RUNFILE])


def case_a_wrong_byte(tree):
    with server(tree) as ask:
        ask(f"fault?path={PATH}&wrong=1000")
        refused(tree, [RUNFILE], "could not be fetched", "SHA-256", "Give the plan a mirror")
        ask("clear")
        goes_on(tree, [RUNFILE])


def case_a_server_that_lies_about_the_commit(tree):
    git = f"{WORLD}/git/open-gpu-kernel-modules.git"
    with away(tree, git):
        tree.run("git", "-c", "safe.directory=*", "clone", "-q", "--bare", "--single-branch", "-b", VERSION, "file:///srv/away", git)
        tree.run("git", "-C", git, "branch", "-m", f"{VERSION}-p2p")
        refused(tree, [SOURCE], f"of {ENTRY} could not be fetched", f"its refs/heads/{VERSION}-p2p is ", "which it does not have",
                "Give the plan a mirror that has it")
        tree.run("rm", "-r", git)
    goes_on(tree, [SOURCE])


def case_no_room_in_var(tree):
    with full(tree, "/var/cache", "32m"):
        refused(tree, [RUNFILE], "/var/cache has ", "MiB free, and ", "Make room there")
        refused(tree, [SOURCE], "/var/cache has ", "MiB free, and 768 are needed", "Make room there")
    goes_on(tree, [SOURCE, RUNFILE])


def case_no_room_in_usr(tree):
    with full(tree, "/usr", "64k"):
        refused(tree, [USERSPACE], "/usr has ", "MiB free, and ", "Make room there")
        refused(tree, [MODULES], "/usr/src has ", "MiB free, and 1024 are needed", "Make room there")
    goes_on(tree, [USERSPACE, MODULES])


def case_no_room_in_boot(tree):
    with full(tree, "/boot", "16m"):
        refused(tree, [NOUVEAU, INITRAMFS], "/boot has ", "MiB free, and ", "Make room there")
    goes_on(tree, [NOUVEAU, INITRAMFS])


def case_no_room_in_boot_for_a_revert(tree):
    """The packages regenerate the initramfs: without room for it nothing is undone."""
    status, told = tree.apply([BACKUP, PINS, PURGE], live=True)
    need(status == 0, f"{status} {told}")
    purged = tree.installed()
    with full(tree, "/boot", "16m"):
        status, told = tree.p2pctl("revert", live=True)
        need(status == 1 and "/boot has " in str(told) and "Make room there" in str(told), f"{status} {told}")
        need(tree.installed() == purged, "packages were changed")
    status, told = tree.p2pctl("revert", live=True)
    need(status == 0 and told["result"] == "reverted", f"revert: {status} {told}")
    tree.same(when=["packages"])


def case_etc_is_read_only(tree):
    with mounted(tree, 'mount --bind "$dir/etc" "$dir/etc" && mount -o remount,ro,bind "$dir/etc"'):
        refused(tree, [PINS], "/etc/apt/preferences.d", "Read-only file system", "mount -o remount,rw")
    goes_on(tree, [PINS])


def others_file(tree, path, steps):
    tree.file(path).parent.mkdir(exist_ok=True)
    tree.file(path).write_text("# mine\n")
    refused(tree, steps, f"{path} is in the way: p2pd did not write it", "Move it to another name")
    tree.file(path).unlink()


def case_files_of_others_where_ours_go(tree):
    for path in ("/etc/apt/preferences.d/00p2pd-driver", "/etc/apt/apt.conf.d/52p2pd-driver"):
        others_file(tree, path, [PINS])
    options = ("modprobe-options", {"module": "nvidia", "options": {"NVreg_EnableResizableBar": 1}})
    arguments_of = ("kernel-cmdline", {"arguments": ["iommu=pt"]})
    others_file(tree, "/etc/modprobe.d/zz-p2pd.conf", [options])
    others_file(tree, "/etc/default/grub.d/zz-p2pd.cfg", [arguments_of])
    goes_on(tree, [PINS, options])


def case_files_of_others_where_blacklists_go(tree):
    others_file(tree, "/etc/modprobe.d/p2pd-nouveau.conf", [NOUVEAU])
    others_file(tree, "/etc/modprobe.d/00-p2pd-trial.conf", [MODULES])
    goes_on(tree, [NOUVEAU, MODULES])


def case_a_kernel_without_headers(tree):
    tree.file("/boot/vmlinuz-6.99.0-bare").write_text("")
    tree.file("/lib/modules/6.99.0-bare").mkdir()
    refused(tree, [SOURCE, BUILD], "kernel 6.99.0-bare has no headers", "apt-get install linux-headers-6.99.0-bare")
    tree.file("/boot/vmlinuz-6.99.0-bare").unlink()
    tree.file("/lib/modules/6.99.0-bare").rmdir()
    goes_on(tree, [SOURCE, BUILD])


def case_a_build_that_fails_late(tree):
    with catalogue(tree, name="fails-late"):
        entry = {"entry": f"{ENTRY}-fails-late"}
        refused(tree, [("driver-source", entry), ("driver-build", entry)], f"the modules do not build for {tree.kernel}",
                f"Full log: /var/log/p2pd/driver-build-{VERSION}-")
        log = next(tree.file("/var/log/p2pd").glob(f"driver-build-{VERSION}-*-{tree.kernel}.log")).read_text()
        need(log.count("CC [M]") == 7, f"it compiled {log.count('CC [M]')} of 7 files")
    goes_on(tree, [SOURCE, BUILD])


def case_a_kernel_that_comes_later_and_does_not_fit(tree):
    status, told = tree.apply([MODULES], live=True)
    need(status == 0 and told["result"] == "done", f"{status} {told}")
    package = kernel_package(tree, "6.99.0-unfit", "all:\n\tfalse\nmodules:\n\tfalse\n")
    status, said = tree.enter("dpkg", "-i", package)
    need(status == 0 and tree.run("dpkg", "--audit") == "", f"dpkg: {said}")
    plan = tree.plan([MODULES])
    status, told = tree.p2pctl("doctor", plan, live=True)
    need(status != 0 and "6.99.0-unfit" in told["steps"][0]["summary"], f"it is not named: {told}")
    need(told["steps"][0].get("next") or told.get("next"), f"and then? {told}")
    tree.run("dpkg", "--purge", "linux-image-6.99.0-unfit")
    tree.run("rm", "-rf", "/lib/modules/6.99.0-unfit")
    status, told = tree.apply([MODULES], live=True)
    need(status == 0 and told["changed"] is False, f"without it: {status} {told}")


# cases that do not start from the machine before a swap
PURGED = {"case_no_room_in_usr", "case_no_room_in_boot", "case_files_of_others_where_blacklists_go",
          "case_a_kernel_that_comes_later_and_does_not_fit"}


def main():
    root, work, only = arguments()
    cases, ground = Cases(), Tree(work, "ground", root)
    ground.with_grub()
    purged = Tree(work, "purged", ground)
    status, told = purged.p2pctl("apply", purged.plan([RUNFILE, SOURCE, BUILD, BACKUP, PINS, PURGE]), "--state", "/mnt/purged.state", live=True)
    if status != 0:
        cases.say("staged and purged", f"{status} {told}")
        return 1
    cases.run(globals(), only, lambda name: Tree(work, name, purged if name in PURGED else ground))
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
