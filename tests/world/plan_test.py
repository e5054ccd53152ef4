#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""plan_test.py ROOT: the shipped plan geforce-p2p, from a machine with the distribution's driver to ready, and its revert. Needs root.

The machine is a tree made by `root` with the PCI bus, the IOMMU and the firmware of a machine record: two RTX 4090, everything as it
should be except for the driver and an IOMMU that translates. The tools are real. Not real, because they need a kernel and GPUs of
their own: loading a module (stand-ins/modprobe asks the real one what it would insert, and makes the entries of /sys/module and
/proc/driver for it) and p2p-bench (its answers are those of a machine where P2P works, once the new modules are loaded and
the IOMMU does not translate). A reboot is a new boot id, the command line that GRUB would give, and no loaded modules.
Prints "ok NAME" or "FAIL NAME" a line.
"""
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from world_tree import BUILD, DRIVER_WORLD, HERE, VERSION, Cases, Tree, arguments, need  # noqa: E402
from tree import entry  # noqa: E402

RECORD = BUILD / "machines/rtx4090-x2-iommu-default"
REPORT = HERE.parent / "sim/two-gpus.report.json"
TOOLKIT = ("cuda-toolkit-12-8", "cuda-nvcc-12-8", "cuda-toolkit-config-common")
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
# files that a kernel would provide; the stand-ins write to them
MOUNTS = """ && mount --bind "$dir/../sys" "$dir/sys" && mount --bind "$dir/../driver" "$dir/proc/driver" &&
mount --bind "$dir/../cpuinfo" "$dir/proc/cpuinfo" && mount --bind "$dir/../stand-ins" "$dir/usr/local/sbin" """


class Machine(Tree):
    def __init__(self, work, name, on):
        super().__init__(work, name, on)
        shutil.copytree(RECORD / "sys", self.work / "sys", symlinks=True)
        (self.work / "driver").mkdir()
        shutil.copy(RECORD / "proc/cpuinfo", self.work)
        shutil.copytree(DRIVER_WORLD / "stand-ins", self.work / "stand-ins")
        shutil.copy(REPORT, self.work / "stand-ins")
        shutil.copy(RECORD / "lspci-xxxx.txt", self.path)
        self.menu_on_ext4()
        self.mounts = MOUNTS
        self.power_on()

    def menu_on_ext4(self):
        """Puts GRUB's menu on ext4: GRUB writes its environment only on a plain file system, and p2pd checks the mounts."""
        image, grub = self.work / "grub.ext4", self.path / "boot/grub"
        with image.open("wb") as file:
            file.truncate(32 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-d", grub, image], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", image, grub], check=True)
        shutil.rmtree(grub / "lost+found")
        self.menu = self.menu_now()

    def menu_now(self):
        grub = self.path / "boot/grub"
        return {path.relative_to(grub): entry(path) for path in grub.rglob("*")}

    def as_found(self):
        self.same(when=["packages"], without=["/lspci-xxxx.txt", "/dev/kmsg"])
        now = self.menu_now()
        need(now == self.menu, f"in /boot/grub: {[str(path) for path in now.keys() | self.menu.keys() if now.get(path) != self.menu.get(path)]}")

    def close(self):
        subprocess.run(["umount", self.path / "boot/grub"], check=True)
        super().close()

    def power_on(self):
        """Sets the state at boot: no driver module, the IOMMU mode of the command line, and a log with IOMMU faults if it translates."""
        for folder in ((self.work / "sys/module").glob("nvidia*"), (self.work / "driver").glob("nvidia")):
            for one in folder:
                shutil.rmtree(one)
        passes = "iommu=pt" in (self.work / "cmdline").read_text().split()
        for group in (self.work / "sys/kernel/iommu_groups").glob("*/type"):
            group.write_text("identity\n" if passes else "DMA-FQ\n")
        log = (RECORD / "dev/kmsg").read_text().splitlines(keepends=True)
        (self.path / "dev/kmsg").write_text("".join(line for line in log if not passes or "IO_PAGE_FAULT" not in line))

    def boot(self, arguments=None):
        super().boot(arguments)
        line = self.work / "cmdline"
        line.write_text(f"BOOT_IMAGE=/boot/vmlinuz-{self.kernel} {line.read_text()}")  # as GRUB puts it
        if self.mounts:
            self.power_on()

    def walk(self, *words, booted=lambda: None):
        """Runs p2pctl to the end, with the reboots that it asks for: the last answer, and their number. `booted` runs before p2pctl."""
        for boots in range(5):
            status, told = self.p2pctl(*words, live=True)
            if told.get("state") not in ("rebooting", "reverting"):
                return status, told, boots
            self.boot()
            booted()
        return status, told, boots

    def loaded_now(self):
        return {name: (self.work / "sys/module" / name / "srcversion").read_text().strip() for name in MODULES
                if (self.work / "sys/module" / name).exists()}


def fixed(tree):
    """Steps in the order in which they were fixed."""
    events = tree.p2pctl("history", live=True)[1]["events"]
    return [event["step"] for event in events if event["type"] == "fixed"]


def history(tree):
    """The last events, for the message of a failed case."""
    events = tree.p2pctl("history", live=True)[1]["events"]
    return "".join(f"\n    {event['type']} {event['step']} {event['text']}" for event in events[-16:])


def loaded_by_name(tree):
    """Runs each command by which a boot service loads the driver; none of them may load modules that are on trial."""
    for command in (["/usr/bin/nvidia-modprobe"], ["/usr/bin/nvidia-modprobe", "-u"], ["/usr/bin/nvidia-modprobe", "-m"], ["modprobe", "nvidia"],
                    *(["modprobe", name.replace("_", mark)] for name in MODULES[1:] for mark in "_-")):
        status, said = tree.enter("env", "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", *command)  # the stand-in first
        need(not tree.loaded_now(), f"{command} loaded {tree.loaded_now()} on trial: {status} {said}")
        need(status != 0, f"{command} says that it loaded the driver: {said}")


def ready(tree):
    status, told, boots = tree.walk("apply", "geforce-p2p", booted=lambda: loaded_by_name(tree))
    need(status == 0 and told.get("result") == "ready", f"{status} {told} {history(tree)}")
    need(boots == 1, f"{boots} reboots")
    order = fixed(tree)
    swap = ["runfile", "source", "build", "way-back", "pins", "no-packages", "new-userspace", "new-modules"]
    need([step for step in order if step in swap] == swap, order)
    need(tree.loaded_now() == {name: tree.srcversion(name) for name in MODULES}, tree.loaded_now())
    need(tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"], tree.loaded("nvidia"))
    need(not tree.file("/etc/modprobe.d/00-p2pd-trial.conf").exists(), "still on trial")
    need(tree.file(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}").exists(), "no new user space")


def again(tree):
    status, told, boots = tree.walk("apply", "geforce-p2p")
    need((status, told.get("changed"), boots) == (0, False, 0), f"{status} {told}")
    need(told["result"] == "ready", told)


def emptied_cache(tree):
    """Removes the staged files; the machine stays ready."""
    shutil.rmtree(tree.file("/var/cache/p2pd"))
    again(tree)


def verify(tree):
    status, told, _ = tree.walk("apply", "verify")
    need(status == 0 and told["result"] == "ready", f"{status} {told} {tree.said[-2000:]}")


def back(tree):
    status, told, boots = tree.walk("revert")
    need(status == 0 and told.get("result") == "reverted", f"{status} {told} {tree.said[-3000:]}")
    need(boots <= 1, f"{boots} reboots")
    tree.as_found()


def helpless(tree):
    """The new modules do not load: the run undoes all changes by itself."""
    (tree.work / "stand-ins/modprobe").write_text("#!/bin/sh\necho \"modprobe: ERROR: could not insert: No such device\" >&2\nexit 1\n")
    status, told, _ = tree.walk("apply", "geforce-p2p")
    need(status == 1 and told.get("state") == "failed", f"{status} {told} {tree.said[-3000:]}")
    need("modules-loaded" in told["reason"], told)
    tree.as_found()


def workstation(tree):
    """apt installs the toolkit that the driver supports, and it is on the PATH of logins; revert removes it."""
    status, told, _ = tree.walk("apply", "workstation")
    need(status == 0 and told.get("result") == "ready", f"{status} {told} {history(tree)}")
    need("cuda-toolkit" in fixed(tree), fixed(tree))
    said = tree.run("sh", "-c", ". /etc/profile && command -v nvcc && nvcc")
    need(said.startswith("/usr/local/cuda-12.8/bin/nvcc") and "release 12.8" in said, said)
    back(tree)


def main():
    root, work, _ = arguments()
    cases = Cases()
    ground = Tree(work, "ground", root)
    ground.with_grub()
    tree = Machine(work, "machine", ground)
    for name, test in (("from the distribution's driver to ready, with one reboot", ready), ("again: nothing is changed", again),
                       ("ready without what was staged", emptied_cache), ("the plan verify agrees", verify),
                       ("back to the distribution's driver", back)):
        if not cases.runs(name, lambda test=test: test(tree)):
            break
    tree.close()
    other = Machine(work, "other", ground)
    cases.runs("where the new modules do not load, the machine ends as it was found", lambda: helpless(other))
    other.close()
    bare = Tree(work, "bare", ground)
    bare.run("apt-get", "--yes", "purge", *TOOLKIT)
    third = Machine(work, "workstation", bare)
    cases.runs("a workstation: the CUDA toolkit, too, and back", lambda: workstation(third))
    third.close()
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
