#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""packages_test.py ROOT [CASE]...: the package backup, the pins and the purge, by the real apt and dpkg, on overlays of a tree made by `root`.

Prints "ok NAME" or "FAIL NAME" a line; ROOT is not changed, and mounts and processes end with the script. Needs root.
"""
import os
import json
import stat
import sys
import time

sys.dont_write_bytecode = True
from archive import Archive  # noqa: E402
from world_tree import ENTRY, need, run_cases  # noqa: E402

STEPS = [(name, {"entry": ENTRY}) for name in ("way-back", "driver-pins", "packaged-driver")]
SPARED = ("cuda-toolkit-12-8", "cuda-nvcc-12-8", "libcudnn9-cuda-12", "nvidia-container-toolkit", "libnvidia-container1",
          "nsight-compute", "pciutils", "dkms")


def apply(tree, *steps):
    """Applies the steps twice: only the first time changes something."""
    for changed in (True, False):
        code, told = tree.apply(steps)
        need(code == 0 and told.get("changed") == changed, f"apply, changed {changed}: {code} {told}")


def revert(tree):
    code, told = tree.p2pctl("revert")
    need(code == 0, f"revert: {code} {told}")


def same(tree, without=()):
    tree.same(when=["packages"], without=without)
    need(not tree.file("/var/lib/p2pd/way-back").exists(), "the package backup is still there")


def lived_in(tree):
    """Makes changes that an administrator may make: a hold, configuration, an alternative, a disabled unit."""
    options, load = (tree.path / "etc/nvidia/current-open" / name for name in ("nvidia-options.conf", "nvidia-load.conf"))
    tree.run("apt-mark", "hold", "libcuda1", "nvidia-settings")
    options.write_text("options nvidia-current-open NVreg_EnableGpuFirmware=0\n")
    options.chmod(0o600)
    os.chown(options, 1, 1)
    os.setxattr(options, "user.note", b"mine")
    load.unlink()
    tree.run("update-alternatives", "--set", "glx", "/usr/lib/mesa-diverted")
    tree.run("systemctl", "disable", "nvidia-persistenced.service")
    tree.run("apt-mark", "manual", "nvidia-smi")


def without_archives(tree):
    tree.run("mv", "/srv/driver-world/apt", "/srv/away")


def with_archives(tree):
    tree.run("mv", "/srv/away", "/srv/driver-world/apt")


def kill_when(tree, words, at, wanted):
    """Starts p2pctl and kills it, and all that it started, once dpkg's log has `wanted` new lines with `at`."""
    log = tree.path / "var/log/dpkg.log"
    before = log.read_text().count(at)
    process = tree.start(*words)
    until = time.monotonic() + 600
    while process.poll() is None and log.read_text().count(at) < before + wanted:
        need(time.monotonic() < until, "it did not come that far")
        time.sleep(0.01)
    code, _ = tree.kill(process)
    need(code == -9, f"{words}: it ended first, with {code}")


def case_not_before_the_way_back(tree):
    code, told = tree.apply(STEPS[2:])
    need(code == 1 and "not all packages could be reinstalled" in told["reason"], f"{code} {told}")
    same(tree)


def case_apply_again_revert(tree):
    apply(tree, *STEPS)
    left = tree.installed()
    need(not {name for name in left if name.startswith(("libcuda1", "nvidia-driver", "glx-", "libnvidia-glcore"))}, str(left))
    need(left.issuperset(SPARED), f"taken along: {set(SPARED) - left}")
    need("nvidia" not in tree.run("dkms", "status"), "DKMS still has it")
    need("Inst nvidia" not in tree.run("apt-get", "-s", "install", "nvidia-driver", check=False), "apt would bring a driver")
    need("Inst nvidia-container-toolkit" in tree.run("apt-get", "-s", "--reinstall", "install", "nvidia-container-toolkit"), "the pin takes too much")
    need(stat.S_IMODE((tree.path / "var/lib/p2pd/way-back").stat().st_mode) == 0o700, "the package backup is open to all")
    without_archives(tree)
    revert(tree)
    with_archives(tree)
    same(tree)


def case_built_again_without_archives(tree):
    without_archives(tree)
    apply(tree, *STEPS)
    manifest = json.loads((tree.path / "var/lib/p2pd/way-back/manifest.json").read_text())
    need({row["from"] for row in manifest["packages"]} == {"rebuilt"}, "not all were built again")
    revert(tree)
    with_archives(tree)
    # a rebuilt package has its configuration as it was found: dpkg has another checksum of it, and neither dpkg nor the
    # alternatives know of what was missing
    same(tree, ["/var/lib/dpkg/info/nvidia-open-kernel-support.*", "/var/lib/dpkg/status", "/etc/nvidia/nvidia-load.conf",
               "/etc/alternatives/nvidia--nvidia-load.conf", "/var/lib/dpkg/alternatives/*"])


# runs in the tree: holds a lock, as dpkg does, until the command that it starts has reported that it waits
HOLDER = r"""
use Fcntl;
open(my $lock, "+>>", shift) or die "no file: $!";
my $whole = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($lock, F_SETLK, $whole) or die "no lock: $!";
pipe(my $from, my $to);
my $child = fork;
if (!$child) { open(STDERR, ">&", $to); exec(@ARGV) or die; }
close $to;
while (<$from>) {
    print STDERR;
    if (/ holds /) { sleep 3; close $lock; }
}
waitpid($child, 0);
exit($? >> 8);
"""


def case_a_lock_is_waited_for(tree):
    plan, lock = tree.plan(STEPS), "/var/lib/dpkg/lock-frontend"
    code, told = tree.finish(tree.start("apply", plan, live=True, inside=("perl", "-e", HOLDER, lock)))
    need(code == 0, f"{code} {told}")
    need(f" perl holds {lock}" in tree.said, f"the holder is not named: {tree.said}")
    code, told = tree.p2pctl("revert", live=True)
    need(code == 0, f"revert: {code} {told}")
    same(tree)


def interrupted(tree):
    """True if dpkg has something to complete."""
    return bool(tree.run("dpkg", "--audit").strip() or list(tree.file("/var/lib/dpkg/updates").iterdir()))


def case_killed_in_the_purge(tree):
    plan, mark = tree.plan([("package-state", None), *STEPS]), tree.file("/var/lib/p2pd/.scripts.new")
    for at, wanted in ((" remove ", 12), (" status ", 3)):  # in the purge; then in its repair
        kill_when(tree, ("apply", plan), at, wanted)
        need(interrupted(tree), f"dpkg was not interrupted at {wanted} times {at}")
        need(mark.is_dir(), f"the mark of p2pd's change is gone after {wanted} times {at}")
    code, told = tree.p2pctl("apply", plan)
    need(code == 0, f"{code} {told}")
    need(not interrupted(tree) and not mark.exists(), "the repair left something")
    need(tree.installed().issuperset(SPARED), "taken along")
    kill_when(tree, ("revert",), " install ", 10)
    revert(tree)
    same(tree)


def refused(tree, *texts):
    """Checks that a revert fails with these texts, and changes no package."""
    before = tree.installed()
    code, told = tree.p2pctl("revert")
    need(code == 1 and all(text in str(told) for text in texts), f"revert: {code} {told}")
    need(tree.installed() == before and not interrupted(tree), "packages were changed")


def backup_of(tree, package):
    return next(tree.file("/var/lib/p2pd/way-back/debs").glob(f"{package}_*"))


def case_damaged_package_backup(tree):
    """Nothing is undone while a .deb cannot be fetched again, and all of it once it can."""
    apply(tree, *STEPS)
    backup_of(tree, "libcuda1").write_bytes(b"damaged")
    backup_of(tree, "nvidia-kernel-open-dkms").unlink()
    without_archives(tree)
    refused(tree, "/var/lib/p2pd/way-back/debs/libcuda1_", " is damaged, and libcuda1:amd64 ", "cannot be fetched again")
    with_archives(tree)
    revert(tree)
    same(tree)


def case_packages_that_a_person_installs_meanwhile(tree):
    """They count as restored: their lost .deb is not needed, and a newer one stays beside the rest if that fits."""
    apply(tree, *STEPS)
    deb = backup_of(tree, "nvidia-support")
    tree.run("dpkg", "--install", f"/var/lib/p2pd/way-back/debs/{deb.name}")
    deb.unlink()
    without_archives(tree)
    archive = Archive(tree)
    archive.holds("nvidia-modprobe", {}, Version="999")
    tree.run("dpkg", "--install", f"{archive.FOLDER}/nvidia-modprobe_999.deb")
    backup_of(tree, "nvidia-modprobe").write_bytes(b"damaged")
    revert(tree)
    need(" 999" in tree.run("dpkg-query", "-W", "-f", "${Package} ${Version}", "nvidia-modprobe"), "the newer one was replaced")
    need({"libcuda1", "nvidia-driver", "nvidia-support"} <= tree.installed(), f"not all came back: {tree.installed()}")


def case_driver_that_a_person_installs_meanwhile(tree):
    """apt refuses the rest beside it: nothing is changed, and without the backup the person's driver stays."""
    apply(tree, *STEPS)
    archive = Archive(tree)
    archive.holds("libcuda1", {}, Version="999", Conflicts="nvidia-driver")
    tree.run("dpkg", "--install", f"{archive.FOLDER}/libcuda1_999.deb")
    refused(tree, "apt refuses to install the driver's packages again", "remove /var/lib/p2pd/way-back")
    tree.run("rm", "-r", "/var/lib/p2pd/way-back")
    left = tree.installed()
    revert(tree)
    need(tree.installed() == left, "packages were changed")


def case_interrupted_by_others(tree):
    """p2pd does not complete a dpkg run that another program left interrupted: nothing is changed."""
    plan = tree.plan([("package-state", None), *STEPS])
    kill_when(tree, ("apply", plan), " remove ", 12)
    tree.file("/var/lib/p2pd/.scripts.new").rmdir()
    left = tree.installed()
    code, told = tree.p2pctl("apply", plan)
    need(code == 4 and "dpkg --configure -a" in told["next"], f"{code} {told}")
    need(interrupted(tree) and tree.installed() == left, "packages were changed")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), lived_in))
