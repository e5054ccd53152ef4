#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""actions_test.py ROOT [ACTION]...: every fix of actions/ that the tools of a tree made by `root` can run. Needs root.

Each row runs one action in a plan of its own, on a tree where the actions that it needs were applied, and made permanent, by an
earlier run with a state directory of its own. So "undo" compares the tree with what it was right before that one action.
  apply -> check   the run succeeds, and p2pctl doctor then says that the step holds
  again            a second run says "changed": false, and no file was changed, written again or made
  undo             revert restores each path: kind, content, mode, owner, extended attributes (not_compared lists the exceptions)
p2pctl runs inside the tree, as on a booted machine; a reboot is a new boot id and the command line that GRUB would give.
Prints "ok NAME" or "FAIL NAME" a cell, then the table. An action that has neither a row nor a reason here fails.
"""
import os
import re
import stat
import sys

sys.dont_write_bytecode = True
from archive import Archive  # noqa: E402
from world_tree import ENTRY, HERE, Cases, Failed, Tree, arguments, need  # noqa: E402
from tree import MACHINES, compared, write  # noqa: E402

SOURCES = HERE.parents[1] / "actions"
OF_ENTRY = {"entry": ENTRY}
KEPT = {"entry": "driver-world/570.123.11-p2p", "userspace": "keep"}  # build of the installed packages' version; the packages stay
OFFERED = {"entry": "driver-world/570.133.11-p2p"}  # build of the newer version in the archive


def put_cards(tree):
    """Writes the bus of a record into sysfs: two cards below root ports with ACS redirect. Configuration space is regular files."""
    functions = (MACHINES / "rtx4090-x2-am5/lspci-xxxx.txt").read_text().strip().split("\n\n")
    for address, *rows in ([function.split()[0], *function.splitlines()[1:]] for function in functions):
        config = bytes.fromhex("".join(row.split(":", 1)[1] for row in rows))
        config = config.ljust(4096 if len(config) > 256 else 256, b"\0")
        folder = tree.path / "sys/bus/pci/devices" / address
        write(folder / "config", config)
        write(folder / "vendor", f"0x{config[1::-1].hex()}\n")
        write(folder / "device", f"0x{config[3:1:-1].hex()}\n")
        write(folder / "class", f"0x{config[11:8:-1].hex()}\n")
        write(folder / "resource", "0x0 0x0 0x0\n")


def with_keep(tree):
    """Installs a catalogue that also has the version of the packages."""
    tree.with_grub()
    tree.run("cp", "/srv/driver-world/catalogue/keep.yaml", "/etc/p2pd/catalogue.d/driver-world.yaml")


def without_toolkit(tree):
    tree.run("apt-get", "--yes", "purge", "cuda-toolkit-12-8", "cuda-nvcc-12-8", "cuda-toolkit-config-common")


def with_compilers(tree):
    """Adds an archive with stand-ins for missing tools, so that no archive of Debian is needed, and for git, which is removed."""
    tree.run("apt-get", "--yes", "--autoremove", "purge", "git")
    archive = Archive(tree)
    archive.holds("g++", {"usr/bin/g++": "#!/bin/sh\n"}, Depends="libstdc++-99-dev")
    archive.holds("libstdc++-99-dev", {"usr/include/c++/99/new": "// made\n"})
    archive.holds("git", {"usr/bin/git": "#!/bin/sh\n"})
    archive.update()


def with_old_cdi(tree):
    """Creates device files, and the CDI file that nvidia-ctk made for an older driver."""
    for number in range(2):
        os.mknod(tree.file(f"/dev/nvidia{number}"), stat.S_IFCHR | 0o666, os.makedev(195, number))
    made = tree.run("nvidia-ctk", "cdi", "generate")
    need(made.count("- name:") == 2, made)
    write(tree.file("/etc/cdi/nvidia.yaml"), re.sub(r"libcuda\.so\.[\d.]+", "libcuda.so.535.54.03", made))


def with_nccl_block(tree):
    """Writes an nccl.conf with an administrator's line, and p2pd's block, which these cards do not need."""
    put_cards(tree)
    write(tree.file("/etc/nccl.conf"), "NCCL_DEBUG=WARN\n# BEGIN p2pd\nNCCL_P2P_LEVEL=SYS\n# END p2pd\n")


# trees that actions run on: name, base, actions applied there, other preparation
GROUND = [
    ("with packages", None, [], Tree.with_grub),
    ("sourced", "with packages", [("driver-source", OF_ENTRY)], None),
    ("staged", "sourced", [(name, OF_ENTRY) for name in ("driver-runfile", "driver-build", "way-back", "driver-pins")], None),
    ("purged", "staged", [("packaged-driver", OF_ENTRY)], None),
    ("blacklisted", "purged", [("nouveau-blacklist", {})], None),
    ("with modules", "purged", [("driver-modules", {**OF_ENTRY, "by": "dkms"})], None),
    ("swapped", "purged", [("driver-userspace", OF_ENTRY)], put_cards),
    ("kept", None, [], with_keep),
    ("kept and built", "kept", [(name, {"entry": KEPT["entry"]}) for name in ("driver-source", "driver-build")], None),
    ("kept and backed up", "kept", [("way-back", OFFERED)], put_cards),
    ("with cards", "with packages", [], put_cards),
    ("without tools", "with cards", [], with_compilers),
    ("without toolkit", "with packages", [], without_toolkit),
    ("with old CDI", "with packages", [], with_old_cdi),
    ("with a block for NCCL", "with packages", [], with_nccl_block),
]
# action, parameters, ground, and further lines of not_compared that its undo may use
ROWS = [
    ("driver-runfile", OF_ENTRY, "with packages", ()),
    ("driver-source", OF_ENTRY, "with packages", ()),
    ("driver-build", OF_ENTRY, "sourced", ()),
    ("way-back", OF_ENTRY, "with packages", ("apt",)),
    ("driver-pins", OF_ENTRY, "with packages", ()),
    ("driver-pins", KEPT, "kept", ()),
    ("driver-modules", KEPT, "kept and built", ()),
    ("driver-update", {"required": True}, "kept and backed up", ("packages", "apt")),
    ("packaged-driver", OF_ENTRY, "staged", ("packages",)),
    ("driver-userspace", OF_ENTRY, "purged", ()),
    ("driver-modules", {**OF_ENTRY, "by": "dkms"}, "purged", ()),
    ("driver-modules", {**OF_ENTRY, "by": "modules_install"}, "purged", ()),
    ("default-kernel", {"stays": True}, "with modules", ()),
    ("nouveau-blacklist", {}, "purged", ()),
    ("initramfs", {}, "blacklisted", ()),
    ("kernel-cmdline", {"arguments": ["iommu=pt", "pci=disable_acs_redir=0000:00:01.1"]}, "with packages", ()),
    ("modprobe-options", {"module": "nvidia", "options": {"NVreg_EnableResizableBar": 1}, "registry_dwords": {"RMForceP2P": 1}},
     "with packages", ()),
    ("build-tools", {}, "without tools", ("packages",)),
    ("persistenced", {}, "swapped", ()),
    ("container-devices", {}, "with old CDI", ()),
    ("cuda-toolkit", {"version": "12-8", "host_compiler": "/usr/bin/gcc-12"}, "without toolkit", ("packages",)),
    ("acs-redirection", {}, "with cards", ()),
    ("nccl", {}, "with a block for NCCL", ()),
]
NOT_HERE = {
    "modules-load": "loads modules into the kernel that runs",
    "modules-unload": "takes modules out of the kernel that runs",
    "p2p-baseline": "measures GPUs",
}


def registered():
    return sorted(source.stem.replace("_", "-") for source in SOURCES.glob("*.cpp"))


def settle(tree, verb, *words):
    """Runs a verb with the reboots it asks for; returns the last JSON, with `changed` set if any call changed something."""
    changed = False
    for _ in range(4):
        status, told = tree.p2pctl(verb, *words, live=True)
        need(status == 0, f"{verb}: {status} {told}")
        changed |= told["changed"]
        if told["state"] not in ("rebooting", "reverting"):
            return {**told, "changed": changed}
        tree.boot()
    raise Failed(f"{verb}: no end of reboots: {told}")


def apply_and_check(tree, name, parameters, _):
    plan = tree.plan_path = tree.plan([(name, parameters)])
    told = settle(tree, "apply", plan)
    need(told["result"] == "done" and told["changed"], told)
    status, told = tree.p2pctl("doctor", plan, live=True)
    need(status == 0 and [row["verdict"] for row in told["steps"]] == ["pass"], told)


def again(tree, *_):
    before = tree.snapshot(times=True)
    told = settle(tree, "apply", tree.plan_path)
    need(told["changed"] is False, told)
    after = tree.snapshot(times=True)
    # a directory with nothing new but its time held a temporary file
    found = [f"/{path}: was {before.get(path)}, is {after.get(path)}" for path in before.keys() | after.keys()
             if before.get(path) != after.get(path) and compared(path) and not (path not in before and tree.file(str(path)).is_dir())]
    need(not found, "\n".join(found))


def undo(tree, _name, _parameters, when):
    told = settle(tree, "revert")
    need(told["state"] == "idle" and told["result"] == "reverted", told)
    tree.same(tree.found, when)


CELLS = [("apply -> check", apply_and_check), ("again", again), ("undo", undo)]


class Ground:
    """Trees that have what an action needs; each is made when the first row asks for it."""

    def __init__(self, work, root):
        self.work, self.root, self.made = work, root, {}

    def __call__(self, name):
        if name not in self.made:
            before, steps, otherwise = next(row[1:] for row in GROUND if row[0] == name)
            tree = self.made[name] = Tree(self.work, name.replace(" ", "-"), self(before) if before else self.root)
            if steps:
                status, told = tree.p2pctl("apply", tree.plan(steps), "--state", f"/mnt/{tree.name}.state", live=True)
                need(status == 0 and told["result"] == "done", f"{name}: {status} {told}")
            if otherwise:
                otherwise(tree)
        return self.made[name]


def main():
    root, work, only = arguments()
    cases, ground, table = Cases(), Ground(work, root), []
    for name in registered():
        if not only and not any(name == row[0] for row in ROWS) and name not in NOT_HERE:
            cases.say(f"{name} has a row or a reason", "it has neither")
    for number, (name, parameters, on, when) in enumerate(ROWS):
        if only and name not in only:
            continue
        tree = Tree(work, f"{name}-{number}", ground(on))
        tree.found = tree.snapshot()
        shown = f"{name}, {parameters['by']}" if "by" in parameters else name
        table.append([shown])
        for cell, test in CELLS:
            table[-1].append(cases.runs(f"{shown}: {cell}", lambda test=test: test(tree, name, parameters, when)))
        tree.close()
    print(f"\n{'action':34}" + "".join(f"{cell:16}" for cell, _ in CELLS))
    for shown, *cells in table:
        print(f"{shown:34}" + "".join(f"{'ok' if fine else 'FAIL':16}" for fine in cells))
    for name, why in NOT_HERE.items():
        print(f"{name:34}not here: {why}")
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
