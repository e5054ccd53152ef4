#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""install_test.py DIR [PART]...: the new driver's steps with the real tools, in a tree made by `root`: the runfile, DKMS, depmod,
update-initramfs, dpkg. Prints "ok NAME" or "FAIL NAME" a line; DIR is not changed: overlays take the changes. Needs root."""
import os
import shutil
import sys
import time

sys.dont_write_bytecode = True
from archive import Archive, kernel_package  # noqa: E402
from world_tree import ENTRY, OLDER, VERSION, Cases, Tree, arguments  # noqa: E402

STAGE = [(name, {"entry": ENTRY}) for name in ("driver-runfile", "driver-source", "driver-build")]
USERSPACE = ("driver-userspace", {"entry": ENTRY})
REST = [("nouveau-blacklist", {}), ("initramfs", {})]
CASES = Cases()


def modules(by):
    return ("driver-modules", {"entry": ENTRY, "by": by})


def t(name, holds, shown=""):
    CASES.say(name, None if holds else shown)


def purge(tree):
    """Purges the packaged driver with plain apt."""
    sources = "nvidia-graphics-drivers nvidia-open-gpu-kernel-modules nvidia-support nvidia-persistenced nvidia-settings " \
              "nvidia-modprobe glx-alternatives".split()
    rows = [line.split() for line in tree.enter("dpkg-query", "-W", "-f", "${source:Package} ${Package}\n")[1].splitlines()]
    status, said = tree.enter("apt-get", "--quiet=2", "--yes", "purge", *[row[1] for row in rows if row[0] in sources])
    t("apt purges the packaged driver", status == 0 and not tree.file("/etc/nvidia").exists(), said)


def on_trial(tree):
    """Applies everything but the proof, checks what is installed and blacklisted, and reverts."""
    tree.file("/usr/lib/nvidia").mkdir(exist_ok=True)  # the traps: another installer's mark, an X server
    tree.file("/usr/lib/nvidia/alternate-install-present").touch()
    tree.file("/tmp/.X0-lock").write_text("         1\n")
    before = tree.snapshot()
    status, run = tree.apply([*STAGE, USERSPACE, modules("dkms"), *REST], proof=True)
    t("past the X check and alternate-install-present", status != 0 and "proof" in run.get("reason", ""), tree.said)
    t("the runfile's libraries are there", tree.file(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}").exists(), tree.said)
    t("modprobe would load what was built", tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"],
      tree.loaded("nvidia"))
    t("through DKMS", f"p2pd-nvidia/{VERSION}, {tree.kernel}, x86_64: installed" in tree.enter("dkms", "status")[1])
    for module in ("nvidia", "nvidia-uvm", "nvidia_modeset", "nvidia-drm", "nvidia-peermem"):
        show = ["modprobe", "--set-version", tree.kernel, "--show-depends", module]
        named, past = tree.enter(*show)[1].splitlines(), tree.enter(*show, "--ignore-install")[1].splitlines()
        t(f"{module} is loaded neither by name nor for a device until the proof",
          named[-1].split() == ["install", "/bin/false"] and not tree.enter(*show, "--use-blacklist")[1].count("insmod"), named)
        t(f"{module} is loaded past that where it is asked for", past[-1].startswith("insmod ") and "/updates/" in past[-1], past)
    listed = tree.enter("lsinitramfs", f"/boot/initrd.img-{tree.kernel}")[1]
    t("the initramfs has both blacklists", "etc/modprobe.d/00-p2pd-trial.conf" in listed and "p2pd-nouveau.conf" in listed, listed[:2000])
    status, run = tree.p2pctl("revert")
    t("revert", status == 0 and run.get("state") == "idle" or run.get("result") == "reverted", tree.said)
    lines = tree.differences(before)
    t("reverted, the tree is what it was", not lines, lines)


def later_kernels(tree):
    """Installs, after the driver, a kernel that the modules do not fit, then one that they fit."""
    package = kernel_package(tree, "6.99.0-unfit", "all:\n\tfalse\nmodules:\n\tfalse\n")
    status, said = tree.enter("dpkg", "-i", package)
    t("a kernel that the modules do not fit installs without them",
      status == 0 and not tree.file("/lib/modules/6.99.0-unfit/updates").exists(), said)
    t("dpkg has nothing to complain of", tree.enter("dpkg", "--audit")[1] == "")
    conf = tree.file(f"/usr/src/p2pd-nvidia-{VERSION}/dkms.conf")
    text = conf.read_text()
    conf.write_text(text.split("if [")[0])
    status, said = tree.enter("dpkg", "-i", package)
    t("without the condition it would end in an error", status != 0 and "One or more modules failed to install" in said, said)
    conf.write_text(text)
    status, said = tree.enter("sh", "-c", "dpkg --purge linux-image-6.99.0-unfit && rm -r /lib/modules/6.99.0-unfit; rm " + package)
    fits = "6.1.0-999-fits"
    folder = tree.file(f"/lib/modules/{fits}")
    folder.mkdir()
    for name in ("build", "source"):
        (folder / name).symlink_to(os.readlink(tree.file(f"/lib/modules/{tree.kernel}/{name}")))
    tree.enter("depmod", fits)
    status, said = tree.enter("dkms", "autoinstall", "--kernelver", fits)
    t("a kernel that they fit gets them from DKMS", status == 0 and (folder / "updates/dkms/nvidia-uvm.ko").exists(), said)


def proven(tree):
    """A complete run, a second one, kernels that are installed later, and the rollback."""
    before = tree.snapshot()
    steps = [*STAGE, USERSPACE, modules("dkms"), *REST]
    status, run = tree.apply(steps)
    t("a whole run", status == 0 and run.get("result") == "done", tree.said)
    t("commit lifts the blacklist", not tree.file("/etc/modprobe.d/00-p2pd-trial.conf").exists())
    listed = tree.enter("lsinitramfs", f"/boot/initrd.img-{tree.kernel}")[1]
    t("in the initramfs, where it could blacklist anything, too",
      "p2pd-nouveau.conf" in listed and not ("p2pd-trial" in listed and "nvidia.ko" in listed), listed[:2000])
    after = tree.snapshot()
    status, run = tree.apply(steps)
    lines = tree.differences(after)
    t("a second run changes nothing", status == 0 and run.get("changed") is False and not lines, f"{tree.said}{lines}")
    later_kernels(tree)
    status, run = tree.p2pctl("revert")
    t("revert with a later kernel", status == 0, tree.said)
    t("none of ours is left with it", not tree.file("/lib/modules/6.1.0-999-fits/updates").exists())
    shutil.rmtree(tree.file("/lib/modules/6.1.0-999-fits"))
    lines = tree.differences(before)
    t("nothing but the kernels' own traces differs", not [line for line in lines if "/var/lib/dpkg" not in line
                                                          and "/var/log" not in line and "initramfs-tools" not in line], lines)


def by_hand(tree):
    """Without DKMS, past a module of unknown origin that would take precedence."""
    odd = next(tree.file(f"/lib/modules/{tree.kernel}/kernel").rglob("*.ko"))
    tree.file(f"/lib/modules/{tree.kernel}/updates").mkdir()
    shutil.copy(odd, tree.file(f"/lib/modules/{tree.kernel}/updates/nvidia.ko"))
    tree.enter("depmod", tree.kernel)
    before = tree.snapshot()
    status, run = tree.apply([*STAGE, modules("modules_install")])
    t("modules_install beside DKMS", status == 0 and tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"], tree.said)
    t("in updates/p2pd, the other one put aside", tree.loaded("nvidia").endswith("/updates/p2pd/nvidia.ko"), tree.loaded("nvidia"))
    status, run = tree.p2pctl("revert")
    lines = tree.differences(before)
    t("its revert gives all back", status == 0 and not lines, f"{tree.said}{lines}")


def older_runfile(tree):
    """The driver of another runfile is replaced, and restored by revert."""
    runfile = f"/srv/driver-world/http/XFree86/Linux-x86_64/{OLDER}/NVIDIA-Linux-x86_64-{OLDER}.run"
    status, said = tree.enter("sh", runfile, "--silent", "--no-kernel-modules", "--no-kernel-module-source", "--no-x-check")
    t("an older runfile's driver is there", status == 0, said)
    before = tree.snapshot()
    status, run = tree.apply([STAGE[0], USERSPACE])
    manifest = tree.file("/var/lib/nvidia/log").read_text().split("\n")[0]
    t("the newer takes its place", status == 0 and manifest == VERSION, tree.said)
    status, run = tree.p2pctl("revert")
    lines = tree.differences(before)
    t("the older one is back, to the byte", status == 0 and not lines, f"{tree.said}{lines}")


def older_runfile_with_dkms(tree):
    """The same for a driver whose modules DKMS has, for two kernels: the installer uses DKMS by itself where it is installed."""
    tree.file("/root/fits.h").write_text("#include <linux/pci.h>\n#define pci_resize_resource(dev, bar, size) pci_resize_resource(dev, bar, size, 0)\n")
    other = "6.1.0-1-other"
    tree.file(f"/lib/modules/{other}").mkdir()
    for name in ("build", "source"):
        tree.file(f"/lib/modules/{other}/{name}").symlink_to(os.readlink(tree.file(f"/lib/modules/{tree.kernel}/{name}")))
    runfile = f"/srv/driver-world/http/XFree86/Linux-x86_64/{OLDER}/NVIDIA-Linux-x86_64-{OLDER}.run"
    fits = ("env", "KCFLAGS=-include /root/fits.h")  # its source is older than the kernel
    status, said = tree.enter(*fits, "sh", runfile, "--silent", "--no-x-check", "--no-distro-scripts", "--skip-module-load",
                              f"--kernel-name={tree.kernel}")
    t("an older runfile gives its modules to DKMS", status == 0, said)
    status, said = tree.enter(*fits, "dkms", "install", "-m", "nvidia", "-v", OLDER, "-k", other)
    t("DKMS has them for another kernel, too", status == 0, said)
    for kernel in (tree.kernel, other):
        tree.run("depmod", kernel)

    def modules_now():
        return tree.run("dkms", "status"), [tree.enter("modinfo", "-k", kernel, "-F", "filename", "nvidia")[1] for kernel in (tree.kernel, other)]
    had = modules_now()
    t("modprobe would load them", had[0].count(f"nvidia/{OLDER}, ") == 2 and all("/updates/dkms/nvidia.ko" in one for one in had[1]), had)
    lost = tree.file(f"/lib/modules/{other}/updates/dkms/nvidia-uvm.ko")
    lost.rename(tree.file("/root/nvidia-uvm.ko"))
    before = tree.snapshot()
    status, run = tree.apply([USERSPACE])
    lines = tree.differences(before)
    t("one that could not come back whole is not touched", run.get("state") == "blocked" and not lines
      and f"cannot be backed up completely: DKMS installed nvidia-uvm.ko for {other}" in run.get("reason", ""), f"{tree.said}{lines}")
    tree.p2pctl("revert")  # otherwise the run continues with its plan
    tree.file("/root/nvidia-uvm.ko").rename(lost)
    before = tree.snapshot()
    status, run = tree.apply([*STAGE, USERSPACE, modules("dkms")])
    t("the newer takes its place, modules and all", status == 0 and tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"]
      and "nvidia/" + OLDER not in tree.run("dkms", "status"), tree.said)
    status, run = tree.p2pctl("revert")
    t("the older one's modules are back, as DKMS had them", status == 0 and modules_now() == had, f"{tree.said}{modules_now()}")
    lines = tree.differences(before)
    t("and all else of it, to the byte", not lines, lines)


def others_files_after_a_kill(tree):
    """Files that others install while a killed installer waits to be resumed stay theirs, whatever their names."""
    before = tree.snapshot()
    plan = tree.plan([STAGE[0], USERSPACE])
    process = tree.start("apply", plan)
    noted = tree.file("/var/lib/nvidia/log")
    while process.poll() is None and not (noted.exists() and noted.read_text().count("\n") > 6):
        time.sleep(0.001)
    t("killed in the installer", tree.kill(process)[0] == -9 and not tree.file("/usr/bin/nvidia-smi").exists(), tree.said)
    runfile = f"/var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-{VERSION}.run"
    tree.run("sh", runfile, "--extract-only", "--target", "/root/unpacked")
    smi = tree.file("/root/unpacked/nvidia-smi").read_text()
    archive = Archive(tree)
    archive.holds("smi-of-others", {"usr/lib/others/nvidia-smi": smi, "usr/lib/others/README.txt": "theirs\n"})
    tree.run("dpkg", "--install", f"{Archive.FOLDER}/smi-of-others_99.9-1.deb")
    tree.file("/usr/local/bin/nvidia-smi").write_text("#!/bin/sh\n# mine\n")
    half = tree.file(f"/usr/lib/x86_64-linux-gnu/libnvidia-fbc.so.{VERSION}")  # as NVIDIA's installer leaves it
    half.write_bytes(bytes(tree.file(f"/root/unpacked/{half.name}").stat().st_size))
    status, run = tree.apply([STAGE[0], USERSPACE])
    t("resumed to its end", status == 0 and run.get("result") == "done", tree.said)
    t("a package's file stays, be it the same", tree.file("/usr/lib/others/nvidia-smi").exists())
    t("so does its file of another content", tree.file("/usr/lib/others/README.txt").exists())
    t("and one that nobody packaged", tree.file("/usr/local/bin/nvidia-smi").exists())
    t("dpkg misses nothing", tree.run("dpkg", "--verify", "smi-of-others") == "")
    status, run = tree.p2pctl("revert")
    t("revert", status == 0 and not half.exists(), tree.said)
    tree.run("dpkg", "--purge", "smi-of-others")
    tree.file("/usr/local/bin/nvidia-smi").unlink()
    for path in (*Archive.PATHS, "/root/unpacked"):
        tree.run("rm", "-r", path)
    lines = tree.differences(before, when=["packages"])
    t("the half of a file that the installer had left is gone, and nothing else", not lines, lines)


def killed(tree):
    """Kills p2pctl repeatedly, in apply and in the rollback."""
    before = tree.snapshot()
    plan = tree.plan([*STAGE, USERSPACE, modules("dkms"), *REST])
    for name, argv, first, more in (("apply", ("apply", plan), 0.5, 0.7), ("revert", ("revert",), 0.05, 0.05)):
        kills, status, run = 0, -9, {}
        while status == -9 and kills < 60:
            status, run = tree.p2pctl(*argv, killed_after=first + more * kills)
            kills += status == -9
        t(f"{name} comes to its end, however often it was killed ({kills} times)", status == 0 and kills > 2, tree.said)
    lines = tree.differences(before, without=("/tmp/tmp.??????????",))  # mktemp's, of a dkms that was killed
    t("killed and reverted, the tree is what it was", not lines, lines)


def wrong_sum(tree):
    """A runfile with another SHA-256 is never run."""
    runfile = tree.file(f"/var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-{VERSION}.run")
    runfile.parent.mkdir(parents=True)
    runfile.write_text("#!/bin/sh\ntouch /tmp/it-ran\n")
    runfile.chmod(0o755)
    status, run = tree.apply([USERSPACE])
    t("a runfile with a wrong SHA-256 is refused", status == 1 and "SHA-256" in run.get("reason", ""), tree.said)
    t("and was not run", not tree.file("/tmp/it-ran").exists())


def play(parts):
    """Each part, or those that the command line names, on a tree of its own without the distribution's driver; the exit status."""
    root, work, only = arguments()
    purged = Tree(work, "purged", root)
    purge(purged)
    for part in parts:
        if not only or part.__name__ in only:
            tree = Tree(work, part.__name__, purged)
            part(tree)
            tree.close()
    return 1 if CASES.failed else 0


if __name__ == "__main__":
    sys.exit(play((on_trial, proven, by_hand, older_runfile, older_runfile_with_dkms, others_files_after_a_kill, killed, wrong_sum)))
