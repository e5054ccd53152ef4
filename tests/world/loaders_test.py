#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""loaders_test.py ROOT [CASE]...: kernel arguments on trial where systemd-boot starts the machine. Needs root.

Each case runs kernel-cmdline, alone in a plan, on machines of loaders.py, and does what people and packages do meanwhile. ROOT is a
tree of Debian 13 with loader_packages. The Proxmox machine needs P2PD_PROXMOX_BOOT, a folder with the source of proxmox-boot-tool
(package proxmox-kernel-helper); without it those cases are skipped.
After the revert, what boots must be equal to the byte to that of a machine on which the same was done without p2pd.
Prints "ok NAME" or "FAIL NAME" a case and machine, then the table.
"""
import contextlib
import hashlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
from actions_test import settle  # noqa: E402
from tree import entry  # noqa: E402
from loaders import (NEW, NEXT, OLD, PARTITIONS, TRIAL, TRIAL_WORDS, WANTED, ImageTree, LoaderTree, ProxmoxTree)  # noqa: E402
from world_tree import Cases, arguments, need  # noqa: E402

STEPS = [("kernel-cmdline", {"arguments": WANTED})]
BOOTS = ("efi", "etc", "boot", "srv/partitions", "sys")  # folders from which the machine boots, now and later
MACHINES = {  # name: class, and how it is laid
    "text": (LoaderTree, {}),
    "text, no cmdline": (LoaderTree, {"cmdline": False}),
    "image": (ImageTree, {}),
    "image, signed": (ImageTree, {"signed": True}),
    "proxmox": (ProxmoxTree, {}),
}
TEXT, IMAGES, PROXMOX = ("text", "text, no cmdline"), ("image", "image, signed"), ("proxmox",)
ALL = (*TEXT, *IMAGES, *PROXMOX)


def unsigned(image):
    """SHA-256 of a signed image without the signature, which has the time in it; None if it is not signed."""
    data = bytearray(image.read_bytes())
    header = int.from_bytes(data[60:64], "little") + 24
    checksum, table = header + 64, header + 144
    at = int.from_bytes(data[table:table + 4], "little")
    data[checksum:checksum + 4], data[table:table + 8] = bytes(4), bytes(8)
    return hashlib.sha256(data[:at]).hexdigest() if at else None


def boots(tree):
    """What the machine boots from, now and later."""
    found = {path.relative_to(tree.path): entry(path) for folder in BOOTS for path in tree.file(folder).rglob("*")}
    images = {path: unsigned(path) for path in tree.path.glob("efi/EFI/Linux/*.efi")}
    return {**found, **{path.relative_to(tree.path): (*entry(path)[:4], content) for path, content in images.items() if content}}


def same(now, wanted):
    found = [f"/{name}: is {now.get(name)}, was {wanted.get(name)}" for name in sorted(now.keys() | wanted.keys())
             if now.get(name) != wanted.get(name)]
    need(not found, "\n".join(found[:20]))


def apply(tree, reaches=("rebooting",)):
    status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
    need(status == 0 and told["state"] in reaches, f"apply: {status} {told}")
    return told


def commit(tree):
    told = apply(tree, ("ready", "idle"))
    need(told["result"] == "done", told)


def refused(tree, why):
    """Checks that p2pctl says why it cannot begin, and that nothing was written."""
    found = boots(tree)
    status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
    need(status != 0 and why in str(told), f"{status} {told}")
    same(boots(tree), found)


def revert(tree):
    told = settle(tree, "revert")
    need(told["result"] == "reverted", told)


def nothing(_tree):
    pass


def story(tree, twin, armed=nothing, trial=nothing, after=nothing):
    """Trial, proof and revert; `armed`, `trial`, `after`: what is done meanwhile, also on the twin, which has no p2pd."""
    apply(tree)
    armed(tree)
    tree.boot()
    need(tree.has(*WANTED, *TRIAL_WORDS.split()), f"no trial boot: {tree.running()}")
    trial(tree)
    commit(tree)
    after(tree)
    tree.boot()
    need(tree.has(*WANTED) and "p2pd.trial" not in tree.running(), f"not kept: {tree.running()}")
    tree.boots_still()
    told = apply(tree, ("ready", "idle"))
    need(told["changed"] is False, told)
    revert(tree)
    tree.boot()
    need(not any(word in tree.running() for word in WANTED), f"not undone: {tree.running()}")
    armed(twin)
    twin.boot()
    trial(twin)
    after(twin)
    twin.boot()
    same(boots(tree), boots(twin))


# ---- cases: function(tree, twin), and the machines that it runs on

def case_there_and_back(tree, twin):
    """Tried, kept, undone."""
    story(tree, twin)


def case_only_once(tree, twin):
    """bootctl agrees that the trial is no default: it boots if chosen for once, and never again."""
    before = tree.next_entry()["id"]
    apply(tree)
    need(tree.next_entry()["id"].startswith(TRIAL), "bootctl does not see the choice")
    tree.forgets("LoaderEntryOneShot")
    need(tree.next_entry()["id"] == before, "the trial is the default")
    need(any(entry["id"].startswith(TRIAL) for entry in tree.entries()), "no trial among the entries")
    tree.run("bootctl", "set-oneshot", next(entry["id"] for entry in tree.entries() if entry["id"].startswith(TRIAL)))
    tree.boot()
    need(tree.has(*WANTED, *TRIAL_WORDS.split()), tree.running())
    tree.boot()
    need(tree.next_entry()["id"] == before and not tree.has(WANTED[0]), tree.running())
    revert(tree)
    tree.boot()
    twin.boot()
    same(boots(tree), boots(twin))


def case_never_came(tree, twin):
    """A firmware that forgets the choice: told after two boots, and undone."""
    apply(tree)
    for _ in range(4):
        tree.forgets("LoaderEntryOneShot")
        tree.boot()
        need(not tree.has(WANTED[0]), tree.running())
        status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
        if told["state"] != "rebooting":
            break
    need(told["state"] in ("failed", "blocked") and "2 times" in str(told), f"{status} {told}")
    revert(tree)
    tree.boot()
    twin.boot()
    same(boots(tree), boots(twin))


def case_kernel_added_while_armed(tree, twin):
    story(tree, twin, armed=lambda machine: machine.adds_kernel(NEXT))


def case_kernel_added_in_the_trial(tree, twin):
    story(tree, twin, trial=lambda machine: machine.adds_kernel(NEXT))


def case_kernel_added_after(tree, twin):
    story(tree, twin, after=lambda machine: machine.adds_kernel(NEXT))


def case_other_kernel_removed(tree, twin):
    story(tree, twin, armed=lambda machine: machine.removes_kernel(OLD))


def case_kernel_removed_while_armed(tree, twin):
    """The kernel of the trial is removed: the next start of p2pd takes the choice back, and the other kernel boots."""
    apply(tree)
    tree.removes_kernel(NEW)
    status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
    tree.boots_still()
    tree.runs_kernel(OLD)
    tree.boot()
    need(not tree.has(WANTED[0]), f"{tree.running()}; p2pctl said {status} {told}")
    revert(tree)
    twin.removes_kernel(NEW)
    twin.boot()
    tree.boot()
    same(boots(tree), boots(twin))


def case_update_initramfs(tree, twin):
    """Images are made again at each point."""
    def makes(machine):
        machine.tool("update-initramfs", "-u", "-k", "all")  # their hooks install them
    story(tree, twin, armed=makes, trial=makes, after=makes)


def case_boot_counters(tree, twin):
    """The entry that booted counts its boots until systemd-bless-boot ends that, while the trial waits for its boot."""
    for machine in (tree, twin):
        machine.file("/etc/kernel/tries").write_text("3\n")
        machine.adds_kernel(NEXT)
        machine.runs_kernel(NEXT)
        machine.boot()
        need(any("+2-1" in path.name for path in machine.file("/efi").rglob(f"*{NEXT}*")), "no entry that counts")
    story(tree, twin, armed=LoaderTree.blesses)


def edits(machine):
    """Somebody edits the entry that boots."""
    file = next(iter(machine.path.glob(f"efi/loader/entries/*{NEW}.conf")))
    text = file.read_text().replace("ro quiet", "ro quiet nomodeset")
    file.write_text(text + "# edited\n")


def case_edited_while_armed(tree, twin):
    story(tree, twin, armed=edits)


def case_edited_after(tree, twin):
    story(tree, twin, after=edits)


def case_default_of_somebody(tree, twin):
    """loader.conf names another entry, or p2pd's."""
    for machine in (tree, twin):
        conf = next(machine.path.glob("efi/loader/loader.conf"))
        conf.write_text(conf.read_text() + f"default *-{OLD}.*\n")
        machine.boot()
        need(OLD in machine.variable("LoaderEntrySelected"), machine.variable("LoaderEntrySelected"))
    story(tree, twin)
    conf = tree.file("/efi/loader/loader.conf")
    conf.write_text(conf.read_text().replace("default *", "default a*"))
    tree.file("/efi/loader/loader.conf").write_text("default a*\n")
    refused(tree, "would also choose the trial entry")


@contextlib.contextmanager
def mounted(tree, size, content=True):
    """A file system of its own for boot entries, the last one where there are two, with the content of the folder."""
    place, beside = tree.file(f"/srv/partitions/{PARTITIONS[-1]}" if isinstance(tree, ProxmoxTree) else "/efi"), tree.file("/media")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", beside], check=True)
    if content:
        subprocess.run(["cp", "-a", f"{place}/.", beside], check=True)
    subprocess.run(["mount", "--move", beside, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def case_partition_full(tree, _twin):
    """No room for the trial: told, and what boots is as before."""
    with mounted(tree, "4M") as efi:
        filler = efi / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False, stderr=subprocess.DEVNULL)
        before = boots(tree)
        status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
        need(status != 0 and "o space left" in str(told) + tree.said, f"{status} {told}")
        tree.boots_still()
        need(not tree.next_entry()["id"].startswith(TRIAL), "the trial is armed")
        revert(tree)
        same(boots(tree), before)


def case_partition_read_only(tree, _twin):
    with mounted(tree, "64M") as efi:
        subprocess.run(["mount", "-o", "remount,ro", efi], check=True)
        before = boots(tree)
        status, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
        need(status != 0 and "ead-only" in str(told) + tree.said, f"{status} {told}")
        revert(tree)
        same(boots(tree), before)


def case_partition_not_mounted(tree, twin):
    """Nothing begins without the partition; an undo without it is refused, and succeeds once it is back."""
    with mounted(tree, "4k", content=False):
        refused(tree, "no partition with boot entries is mounted")
    apply(tree)
    tree.boot()
    commit(tree)
    with mounted(tree, "4k", content=False):
        status, told = tree.p2pctl("revert", live=True)
        need(status != 0 and "no partition with boot entries is mounted" in str(told), f"{status} {told}")
    tree.boots_still()
    need(WANTED[-1] in tree.next_entry()["cmdline"].split(), tree.next_entry())
    revert(tree)
    tree.boot()
    twin.boot()
    same(boots(tree), boots(twin))


def case_addon(tree, _twin):
    """Addons hold the arguments, and the machine's key signs them."""
    def holds(folder, words):
        addon, out = tree.file(f"/efi/{folder}/p2pd.addon.efi"), tree.work / "section"
        subprocess.run(["objcopy", f"--dump-section=.cmdline={out}", addon, tree.work / "copy"], check=True)
        need(out.read_bytes().rstrip(b"\0").decode() == words, out.read_bytes())
        if tree.file("/etc/kernel/machine.crt").exists():
            tree.run("sbverify", "--cert", "/etc/kernel/machine.crt", f"/{addon.relative_to(tree.path)}")
    apply(tree)
    holds(f"EFI/Linux/{TRIAL}.efi.extra.d", " ".join([*WANTED, TRIAL_WORDS]))
    tree.boot()
    commit(tree)
    holds("loader/addons", " ".join(WANTED))


def case_no_key(tree, _twin):
    """Secure Boot without a key of the machine."""
    tree.file("/etc/kernel/uki.conf").unlink()
    refused(tree, "/etc/kernel/uki.conf names no key")


def case_two_runs(tree, twin):
    """A second run adds arguments: its trial has those of the first, too."""
    first, second = ([("kernel-cmdline", {"arguments": [word]})] for word in WANTED)
    told = settle(tree, "apply", tree.plan(first))
    need(told["result"] == "done", told)
    tree.boot()
    kept = boots(tree)
    told = tree.p2pctl("apply", tree.plan(second), live=True)[1]
    need(told["state"] == "rebooting", told)
    tree.boot()
    need(tree.has(*WANTED, *TRIAL_WORDS.split()), tree.running())
    told = settle(tree, "apply", tree.plan(second))
    need(told["result"] == "done", told)
    tree.boot()
    need(tree.has(*WANTED), tree.running())
    tree.boots_still()
    need(boots(tree) != kept, "the second run made nothing permanent")
    revert(tree)
    tree.boot()
    twin.boot()
    same(boots(tree), boots(twin))


def refreshes(machine):
    machine.tool("proxmox-boot-tool", "refresh")


def case_refresh_while_armed(tree, twin):
    story(tree, twin, armed=refreshes)


def case_refresh_in_the_trial(tree, twin):
    story(tree, twin, trial=refreshes)


def case_refresh_after(tree, twin):
    story(tree, twin, after=refreshes)


def case_pinned(tree, twin):
    """A kernel pin makes the tool write a default into loader.conf."""
    def pins(machine):
        machine.tool("proxmox-boot-tool", "kernel", "pin", OLD)
        refreshes(machine)
    story(tree, twin, armed=pins)


def case_partitions_differ(tree, _twin):
    file = tree.file(f"/srv/partitions/{PARTITIONS[1]}/loader/entries/proxmox-{NEW}.conf")
    file.write_text(file.read_text().replace("quiet", "verbose"))
    refused(tree, "is not as on the other boot partitions")
    file.unlink()
    refused(tree, "is not as on the other boot partitions")
    refreshes(tree)
    apply(tree)


def case_partition_is_gone(tree, twin):
    """One disk of the mirror fails: as for Proxmox's tool, the other one counts, and a refresh corrects the disk that comes back."""
    device = tree.file(f"/dev/disk/by-uuid/{PARTITIONS[1]}")
    apply(tree)
    tree.boot()
    commit(tree)
    device.unlink()
    revert(tree)
    tree.boot()
    need(not tree.has(WANTED[0]), tree.running())
    device.touch()
    for machine in (tree, twin):
        refreshes(machine)
        machine.boot()
    same(boots(tree), boots(twin))


CASES = {
    case_there_and_back: ALL, case_two_runs: ALL, case_only_once: ALL, case_never_came: ALL,
    case_kernel_added_while_armed: ALL, case_kernel_added_in_the_trial: ALL, case_kernel_added_after: ALL,
    case_other_kernel_removed: ALL, case_kernel_removed_while_armed: ALL, case_update_initramfs: ALL,
    case_boot_counters: (*TEXT, *IMAGES), case_edited_while_armed: TEXT, case_edited_after: TEXT,
    case_default_of_somebody: (*TEXT, *IMAGES),
    case_partition_full: ALL, case_partition_read_only: ALL, case_partition_not_mounted: (*TEXT, *IMAGES),
    case_addon: IMAGES, case_no_key: ("image, signed",),
    case_refresh_while_armed: PROXMOX, case_refresh_in_the_trial: PROXMOX, case_refresh_after: PROXMOX, case_pinned: PROXMOX,
    case_partitions_differ: PROXMOX, case_partition_is_gone: PROXMOX,
}


class Grounds(dict):
    """The machines, by name; each is laid when the first case asks for it."""

    def __init__(self, work, root):
        super().__init__()
        self.work, self.root = work, root

    def __missing__(self, name):
        kind, how = MACHINES[name]
        self[name] = kind(self.work, re.sub(r"\W+", "-", name), self.root)
        self[name].lay(**how)
        return self[name]


def asked():
    """The machines, their names, a folder to work in, and the other words."""
    root, work, words = arguments("usr/lib/systemd/boot/efi/linuxx64.efi.stub", "tests/release/tree trixie DIR PACKAGE... (loader_packages)")
    if not ProxmoxTree.SOURCE:
        print("skipped proxmox: P2PD_PROXMOX_BOOT names no folder with the source of proxmox-boot-tool", flush=True)
    names = [name for name, (kind, _) in MACHINES.items() if kind is not ProxmoxTree or ProxmoxTree.SOURCE]
    return Grounds(work, root), names, work, words


def main():
    grounds, machines, work, only = asked()
    cases, table = Cases(), {}
    for number, (case, names) in enumerate(CASES.items()):
        title = case.__name__.removeprefix("case_").replace("_", " ")
        for name in [name for name in names if name in machines and (not only or title in only or f"{title}, {name}" in only)]:
            ground = grounds[name]
            tree, twin = (type(ground)(work, f"{ground.name}-{number}{end}", ground) for end in ("", "-twin"))
            table.setdefault(title, {})[name] = cases.runs(f"{title}, {name}", lambda case=case, tree=tree, twin=twin: case(tree, twin))
            tree.close()
            twin.close()
    print(f"\n{'case':32}" + "".join(f"{name:18}" for name in machines))
    for title, row in table.items():
        print(f"{title:32}" + "".join(f"{({True: 'ok', False: 'FAIL'}.get(row.get(name), '-')):18}" for name in machines))
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
