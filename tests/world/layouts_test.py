#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""layouts_test.py ROOT [LAYOUT]...: p2pd's modules beside the packages of each distribution, by the real apt, dpkg, dkms and depmod.

LAYOUTS of layouts.py, on ROOT and the tree `trixie` beside it. For driver-pins and driver-modules, whose packages stay:
  apply -> check, again, undo   as in actions_test.py
Then on a machine where pins and modules were applied, and made permanent:
  modules win        modprobe would load each of the five from updates/p2pd; before, it would load those of the packages
  full-upgrade       no package changes, though a newer driver is in the archive; without p2pd the driver changes
  unattended         the same with unattended-upgrades
  packages again     the package with modules is reinstalled, or replaced by another build of the same driver: p2pd's modules win
  another branch     a newer branch's driver is asked for, as ubuntu-drivers does: apt refuses, nothing changes; after revert it comes
  next branch        the packages become empty, and need a newer branch's: p2pd takes both, with its modules for that branch, and keeps them
  new kernel         a kernel is installed (on 24.04 that of the next HWE series): p2pd builds modules for it, which win, too; the older one is purged, with p2pd's modules
  modules removed    the package with modules is removed: p2pd's modules win
  driver purged      the driver is purged: doctor says so
Each of those ends with revert: the tree is equal to one on which the same was done without p2pd. Needs root.
Prints "ok NAME" or "FAIL NAME" a cell, then the table.
"""
import contextlib
import re
import sys

sys.dont_write_bytecode = True
from actions_test import CELLS, KEPT, OFFERED, put_cards, settle  # noqa: E402
from kept_test import BAN, HOOK, OVERRIDE, REMOVAL, STEPS, keep  # noqa: E402
from layouts import ANOTHER_BRANCH, LAYOUTS, NEWER_PREBUILT, OLD, PREBUILT, SERIES, WITHOUT_DEBIAN, Machine, apt_get, driver_packages, rows_of, with_empty_packages  # noqa: E402
from world_tree import Cases, arguments, need  # noqa: E402

MODULES = ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm", "nvidia-peermem")
OURS = "updates/p2pd"
NEXT_BRANCH = "driver-world/595.123.11-p2p"
OWN_FILES = (BAN, OVERRIDE, HOOK, REMOVAL, "/etc/kernel/header_postinst.d/dkms-p2pd", "/etc/apt/preferences.d/00p2pd-driver",
             "/etc/apt/apt.conf.d/52p2pd-driver")
UNATTENDED = "/etc/apt/apt.conf.d/51layouts"


class Applied(Machine):
    """The trees of a layout, and `applied`, on which both actions are permanent."""

    def __init__(self, work, root, layout):
        super().__init__(work, root, layout)
        self.applied = self.tree("applied")
        keep(self.applied)

    @contextlib.contextmanager
    def both(self, name):
        """A tree on which both are applied, and one on which nothing is."""
        with contextlib.closing(self.tree(name, self.applied, self.kept)) as tree, contextlib.closing(self.tree(f"{name}-without")) as twin:
            yield tree, twin

    def close(self):
        self.applied.close()
        super().close()


def loads(tree, layout, from_there=OURS, kernel=None):
    """Checks that modprobe would load each module from that directory."""
    kernel = kernel or tree.kernel
    for name in MODULES:
        status, said = tree.enter("modinfo", "-k", kernel, "-F", "filename", layout.module(name))
        need(status == 0 and f"/{kernel}/{from_there}/{layout.module(name)}.ko" in said, f"modprobe would load {said.strip()}")


def versions(tree):
    rows = tree.run("dpkg-query", "-W", "-f", "${Package}\t${Version} ${db:Status-Abbrev}\n").splitlines()
    return dict(row.split("\t") for row in rows)


def doctor(tree):
    """Check to its finding in p2pctl doctor."""
    status, told = tree.p2pctl("doctor", tree.plan([*STEPS, ("driver-userspace", KEPT)]), live=True)
    need("steps" in told, f"doctor: {status} {told}")
    return {row["check"]: f"{row['verdict']}: {row['summary']}" for row in told["steps"]}


def holds(tree, **wanted):
    """Checks that the findings begin with these texts."""
    said = doctor(tree)
    for name, text in {"driver_pins": "pass", "driver_modules": "pass", "driver_userspace": "pass", **wanted}.items():
        need(said[name.replace("_", "-")].startswith(text), f"{name} says {said[name.replace('_', '-')]!r}, not {text!r}")


def reverts_to(tree, twin, without=()):
    """Reverts; nothing of p2pd is left, and the rest is as on a machine without p2pd; `without`: globs that may differ."""
    settle(tree, "revert")
    left = [path for path in OWN_FILES if tree.file(path).exists()] + [str(path) for path in tree.path.glob(f"lib/modules/*/{OURS}")]
    need(not left, f"left: {left}")
    need(not tree.run("dpkg", "--audit"), "dpkg is not content")
    apt_get(tree, "check")
    tree.same(twin, when=["packages", "apt"], without=["/usr/libexec*", *without])
    for path in twin.path.glob("lib/modules/*/modules.dep"):
        now, wanted = (one.file(str(path.relative_to(twin.path))).read_text().splitlines() for one in (tree, twin))
        need(set(now) == set(wanted), f"{path} differs: {sorted(set(now) ^ set(wanted))[:6]}")
    need(tree.in_images() == twin.in_images(), "other files are in the images")


# ---- cells: functions of a machine and its layout

def modules_win(machine, layout):
    loads(machine.kept, layout, layout.place)
    tree = machine.applied
    loads(tree, layout)
    for name in MODULES:
        packaged = tree.file(f"/lib/modules/{tree.kernel}/{layout.place}/{layout.module(name)}{layout.suffix}")
        need(packaged.exists(), f"{packaged} is gone")
    need(not tree.file(BAN).exists(), "the ban stays after the end")
    holds(tree)


def full_upgrade(machine, layout):
    said = apt_get(machine.kept, "--simulate", "full-upgrade")
    need("Inst libcuda1 " in said or "Inst libnvidia-compute-570 " in said, f"without p2pd nothing comes: {said}")
    with machine.both("upgraded") as (tree, twin):
        before = versions(tree)
        said = apt_get(tree, "full-upgrade")
        now = versions(tree)
        need(before.items() <= now.items(), said)
        came = {name: now[name].split()[0] for name in now.keys() - before.keys()}
        if came:  # apt takes it for the package that provides it and is kept back
            need(layout.prebuilt and came == {"nvidia-dkms-570-open": f"{OLD}-0ubuntu0.24.04.1"}, said)
            apt_get(twin, "install", *(f"{name}={version}" for name, version in came.items()))
            twin.run("apt-mark", "auto", *came)
        loads(tree, layout)
        holds(tree, driver_pins="fail: apt may install another driver" if came else "pass")
        reverts_to(tree, twin)


def unattended(machine, layout):
    with machine.both("unattended") as (tree, twin):
        for one in (tree, twin):
            apt_get(one, "--no-install-recommends", "--no-download", "install", "unattended-upgrades", sources=())
            one.file(UNATTENDED).write_text(f'Unattended-Upgrade::Allowed-Origins {{ "{layout.origin}"; }};\nDir::Etc::sourcelist "/dev/null";\n')
        said = twin.run("unattended-upgrade", "--verbose", "--dry-run")
        need(re.search(r"Packages that will be upgraded: .*(libcuda1|libnvidia-compute-570)", said), f"without p2pd nothing comes: {said}")
        before = versions(tree)
        said = tree.run("unattended-upgrade", "--verbose")
        need(versions(tree) == before and "No packages found that can be upgraded unattended" in said, said)
        loads(tree, layout)
        reverts_to(tree, twin, without=["/var/lib/unattended-upgrades/kept-back"])


def of_one_build(kernel, version):
    """Arguments of apt-get: the packages with modules that Ubuntu built for a kernel, and the one that follows its kernels."""
    names = [f"linux-{kind}-nvidia-570-open-{kernel}" for kind in ("modules", "objects")]
    return [f"{name}={version}" for name in (*names, f"linux-signatures-nvidia-{kernel}", SERIES)]


def packages_again(machine, layout):
    with machine.both("again") as (tree, twin):
        for one in (tree, twin):
            if layout.prebuilt:
                apt_get(one, "install", *of_one_build(one.kernel, f"{PREBUILT}+1"))
            else:
                apt_get(one, "--reinstall", "install", f"{layout.modules}={versions(one)[layout.modules].split()[0]}")
        loads(twin, layout, layout.place)
        loads(tree, layout)
        holds(tree)
        if layout.prebuilt:
            status, said = tree.enter("apt-get", "--yes", "--simulate", "install", *of_one_build(tree.kernel, f"{PREBUILT}+2"))
            need(status != 0, f"those of another driver would come: {said}")
        reverts_to(tree, twin)


def another_branch(machine, layout):
    with machine.both("another") as (tree, twin):
        others = [f"{name}-" for name in driver_packages(twin)]  # the resolver of Debian 12 does not find what must go
        asked = ("-o", "DPkg::options::=--force-confnew", "install", layout.another, *others)
        before = versions(tree)
        status, said = tree.enter("apt-get", "--yes", *WITHOUT_DEBIAN, *asked)
        need(status != 0 and layout.another in said and versions(tree) == before, said)
        loads(tree, layout)
        holds(tree)
        settle(tree, "revert")
        for one in (tree, twin):
            apt_get(one, *asked)
            loads(one, layout, "updates/dkms")
        tree.same(twin, when=["packages", "apt"], without=["/usr/libexec*"])


def next_branch(machine, layout):
    with machine.both("next-branch") as (tree, twin):
        for one in (tree, twin):
            put_cards(one)
            with_empty_packages(one, layout)
        before, build = versions(tree), {"entry": NEXT_BRANCH}
        settle(tree, "apply", tree.plan([("way-back", OFFERED)]), "--state", f"/mnt/{tree.name}.state")  # a backup is not made again after the upgrade
        settle(tree, "apply", tree.plan([("driver-source", build), ("driver-build", build), ("driver-update", {"required": True}),
                                         ("driver-pins", {**build, "userspace": "keep"}), ("driver-modules", {**build, "userspace": "keep"})]))
        now = versions(tree)
        need(before.keys() <= now.keys() and layout.another in now, f"gone: {before.keys() - now.keys()}")
        loads(tree, layout)
        version = tree.run("modinfo", "-k", tree.kernel, "-F", "version", layout.module("nvidia")).strip()
        need(NEXT_BRANCH == f"driver-world/{version}-p2p" and list(tree.path.glob(f"usr/lib/*/libcuda.so.{version}")), f"modules of {version}")
        said = apt_get(tree, "full-upgrade")
        need(versions(tree) == now, said)
        status, told = tree.p2pctl("doctor", tree.plan([("driver-update", {"required": True}), ("driver-pins", {**build, "userspace": "keep"}),
                                                        ("driver-userspace", {**build, "userspace": "keep"})]), live=True)
        need(status == 0, told)
        reverts_to(tree, twin)


def new_kernel(machine, layout):
    newer = layout.kernels[-1]
    with machine.both("newer") as (tree, twin):
        older = tree.kernel
        for one in (tree, twin):
            apt_get(one, "install", f"linux-image-{newer}", f"linux-headers-{newer}",
                    *(of_one_build(newer, NEWER_PREBUILT) if layout.prebuilt else ()))
        loads(twin, layout, layout.place, newer)
        for kernel in (older, newer):
            loads(tree, layout, kernel=kernel)
        holds(tree)
        for one in (tree, twin):
            one.runs_kernel(newer)
            apt_get(one, "purge", f"linux-image-{older}", f"linux-headers-{older}")
        need(not tree.file(f"/lib/modules/{older}/updates").exists(), "modules of a kernel that is gone stay")
        loads(tree, layout)
        holds(tree)
        reverts_to(tree, twin)


def modules_removed(machine, layout):
    with machine.both("removed") as (tree, twin):
        before = versions(tree)
        apt_get(tree, "remove", layout.modules)
        now = versions(tree)
        apt_get(twin, "remove", *(name for name in before if now.get(name) != before[name]))
        loads(tree, layout)
        holds(tree, driver_pins="fail: apt may install another driver")
        reverts_to(tree, twin)


def driver_purged(machine, layout):
    with machine.both("purged") as (tree, twin):
        for one in (tree, twin):
            apt_get(one, "purge", *driver_packages(one))
        renamed = layout.nvidia != "nvidia"  # the package with the install lines also defines the names
        holds(tree, driver_pins="fail: apt may install another driver", driver_userspace="fail: the driver's packages cannot stay",
              driver_modules="fail: modules of" if renamed else "pass")
        reverts_to(tree, twin)


CASES = [("modules win", modules_win), ("full-upgrade", full_upgrade), ("unattended", unattended), ("packages again", packages_again),
         ("another branch", another_branch), ("next branch", next_branch), ("new kernel", new_kernel), ("modules removed", modules_removed),
         ("driver purged", driver_purged)]


def of_layout(machine, cases):
    """The cells of a layout, by name."""
    layout, fine = machine.layout, {}
    for name, parameters, on, when in rows_of(layout):
        tree, shown = machine.tree(name, machine.ground(on)), f"{name}, {on}" if on == ANOTHER_BRANCH else name
        tree.found = tree.snapshot()
        for cell, test in CELLS:
            fine[f"{shown}: {cell}"] = cases.runs(f"{layout.name}: {shown}: {cell}", lambda test=test: test(tree, name, parameters, when))
        tree.close()
    for name, test in CASES:
        if test is another_branch and not layout.another:
            continue  # of the same name: "full-upgrade" has it
        if test is next_branch and not layout.next_branch:
            continue
        fine[name] = cases.runs(f"{layout.name}: {name}", lambda test=test: test(machine, layout))
    return fine


def main():
    root, work, only = arguments()
    unknown = set(only) - {layout.name for layout in LAYOUTS}
    if unknown:
        raise SystemExit(f"no layout is called {unknown.pop()}")
    cases, table = Cases(), {}
    for layout in LAYOUTS:
        made = []
        if (not only or layout.name in only) and cases.runs(f"{layout.name}: made", lambda: made.append(Applied(work, root, layout))):
            table[layout.name] = of_layout(made[0], cases)
            made[0].close()
    print(f"\n{'':46}" + "".join(f"{name:16}" for name in table))
    for cell in dict.fromkeys(cell for fine in table.values() for cell in fine):
        print(f"{cell:46}" + "".join(f"{ {True: 'ok', False: 'FAIL', None: '-'}[fine.get(cell)]:16}" for fine in table.values()))
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
