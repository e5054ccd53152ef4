#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sequences_test.py ROOT PACKAGES [--only EVENT[/STATE]]... [--jobs J]: what happens to a machine while p2pd changes it. Needs root.

A table: each event at each state of the plan geforce-p2p, on the machine of plan_test.py (real apt, dpkg, DKMS, GRUB), with /boot on a
file system of its own, two kernels, and the package of p2pd in PACKAGES installed. A state is reached once; each cell starts from an
overlay of it. After the event the same command as before runs again, with the reboots that it asks for, as the worker does by itself.
It ends ready; under a condition that lasts (a full disk), or without its kernel, a run that has not proven P2P may give up and leave
the machine as delivered. Then the invariant must hold:
  boots      each entry that GRUB would boot, the default and a one-time entry, names a kernel and an initrd that exist and are complete
  driver     the packages as delivered, or the new modules with their user space; dpkg has nothing half-installed
  truth      status, doctor, the ready file and the undo records agree with the tree
  revert     revert ends as delivered, apart from the event's own effect
Prints "ok EVENT/STATE" or "FAIL EVENT/STATE" a cell, then the table. A cell that is not run has its reason there.
"""
import argparse
import contextlib
import os
import pathlib
import queue
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from archive import kernel_package  # noqa: E402
from plan_test import MOUNTS, Machine  # noqa: E402
from world_tree import Cases, Failed, Tree, arguments, need  # noqa: E402
from tree import compared, entry  # noqa: E402

SPARE, NEW = "6.1.0-1-spare", "6.99.0-new"  # kernels besides the tree's own: an older one, and one that an event installs
STATE, UNDO = "/var/lib/p2pd", "/var/lib/p2pd/undo"
SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OPEN_STATES = ("walking", "rebooting", "blocked", "paused", "reverting")
HELD_S = 135  # longer than p2pd waits for a lock
PACKAGE = "/srv/p2pd.deb"
LIBRARIES = "LD_LIBRARY_PATH=/mnt/lib"  # of the installed programs, which the tree may lack
LOCK = "/var/lib/dpkg/lock-frontend"
# runs in the tree, since a process in another namespace is not in its table of locks: holds a lock, and runs the command after it
HOLDER = r"""
use Fcntl;
my ($file, $seconds) = splice(@ARGV, 0, 2);
open(my $lock, "+>>", $file) or die "no file: $!";
pipe(my $held, my $holds);
if (fork == 0) {
    fcntl($lock, F_SETLK, pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0)) or die "no lock: $!";
    close $holds;
    sleep $seconds;
    exit;
}
close $holds;
readline $held;
exec @ARGV;
"""
NOT_COMPARED = ["/lspci-xxxx.txt", "/boot"]  # /boot is a file system of its own, which boot_now() compares


class Sequence(Machine):
    """A machine on a small disk, with /boot on another one. `on`: a Tree, or a saved Sequence whose state it continues."""

    def __init__(self, work, name, on, ground):
        disk = work / name
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=90%", "tmpfs", disk], check=True)
        self.ground, self.boot_disk, self.inside = ground, work / f"{name}.ext4", ()
        if not isinstance(on, Sequence):
            super().__init__(work, name, on)
            return
        self.mounts = ""
        Tree.__init__(self, work, name, on, since=ground)
        for folder in ("sys", "driver", "stand-ins"):
            shutil.copytree(on.work / folder, self.work / folder, symlinks=True)
        for file in ("cpuinfo", "osrelease", "boot_id", "cmdline"):
            shutil.copy(on.work / file, self.work)
        subprocess.run(["cp", "--sparse=always", on.boot_disk, self.boot_disk], check=True)
        subprocess.run(["mount", "-o", "loop", self.boot_disk, self.path / "boot"], check=True)
        self.menu, self.mounts = on.menu, MOUNTS

    def menu_on_ext4(self):
        """Puts all of /boot on a file system of its own, and writes the menu again for that."""
        with self.boot_disk.open("wb") as file:
            file.truncate(160 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-d", self.path / "boot", self.boot_disk], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", self.boot_disk, self.path / "boot"], check=True)
        shutil.rmtree(self.path / "boot/lost+found")
        self.run("grub-mkconfig", "-o", "/boot/grub/grub.cfg")
        self.menu = self.menu_now()

    def menu_now(self):
        boot = self.path / "boot"
        return {path.relative_to(self.path): entry(path) for path in boot.rglob("*") if compared(path.relative_to(self.path), ["packages"])}

    def save(self):
        """Ends the use of /boot, so that its disk can be copied."""
        self.unmount("boot")

    def unmount(self, where):
        deadline = time.monotonic() + 60
        while subprocess.run(["umount", self.path / where], check=False, stderr=subprocess.DEVNULL).returncode:
            need(time.monotonic() < deadline, f"{self.path / where} stays busy")
            time.sleep(0.1)

    def close(self):
        self.unmount("boot")
        self.unmount("")
        self.boot_disk.unlink()
        shutil.rmtree(self.work / "tree", ignore_errors=True)
        subprocess.run(["umount", "--lazy", self.work], check=True)

    # ---- boots

    def entries(self):
        """Kernel, initrd and arguments of the entries that GRUB would boot: the default, and a one-time entry before it."""
        grub = self.path / "boot/grub"
        texts = [(grub / "grub.cfg").read_text()]
        if "next_entry=p2pd-trial\n" in (grub / "grubenv").read_text():
            need((grub / "custom.cfg").exists(), "a trial entry is armed, and custom.cfg is not there")
            texts.insert(0, (grub / "custom.cfg").read_text())
        for text in texts:
            found = [re.search(rf"(?m)^\s*{key}\s+(\S+) ?(.*)$", text) for key in ("linux", "initrd")]
            need(all(found), f"an entry without a kernel or an initrd: {text[:2000]}")
            yield found[0][1], found[1][1], found[0][2].replace("\\", "")

    def boots(self):
        for kernel, initrd, _ in self.entries():
            for path in (kernel, initrd):
                file = self.path / "boot" / pathlib.Path(path).name
                need(file.is_file() and file.stat().st_size > 0, f"GRUB would boot {path}, which is not there")
            self.run("sh", "-c", f"lsinitramfs /boot/{pathlib.Path(initrd).name} >/dev/null")
        self.run("grub-script-check", "/boot/grub/grub.cfg")
        if (self.path / "boot/grub/custom.cfg").exists():
            self.run("grub-script-check", "/boot/grub/custom.cfg")

    def boot(self, arguments=None):
        if arguments is None:
            self.boots()
            kernel, _, arguments = next(iter(self.entries()))
            self.runs_kernel(pathlib.Path(kernel).name[len("vmlinuz-"):])
            if "p2pd.trial=1" in arguments.split():
                self.run("grub-editenv", "/boot/grub/grubenv", "set", "next_entry=")
        super().boot(arguments)

    # ---- p2pd

    def database(self):
        return sqlite3.connect(f"file:{self.file(STATE)}/state.db?mode=ro", uri=True)

    def events(self):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self.database()) as database:
            return database.execute("SELECT type,step FROM events ORDER BY id").fetchall()
        return []

    def history_end(self):
        with contextlib.closing(self.database()) as database:
            return database.execute("SELECT type,step,text FROM events WHERE text<>'' ORDER BY id DESC LIMIT 6").fetchall()

    def start(self, *words, live=False, inside=(), pass_fds=()):
        return super().start(*words, live=live, inside=(*self.inside, *inside), pass_fds=pass_fds)

    def killed_at(self, event, *words):
        """Runs p2pctl, and kills it and all that it started once it has recorded this event (type, step or None) anew."""
        def count():
            return sum(one[0] == event[0] and event[1] in (None, one[1]) for one in self.events())
        had, process = count(), self.start(*words, live=True)
        while process.poll() is None and count() == had:
            time.sleep(0.005)
        need(self.kill(process)[0] == -9 and count() > had, f"it ended before {event}: {self.events()[-12:]} {self.history_end()}")

    def settle(self, *words):
        """Runs p2pctl with the reboots that it asks for, and checks that each of them has something to boot."""
        told = {}
        for _ in range(6):
            status, told = self.p2pctl(*words, live=True)
            self.boots()
            if told.get("state") not in ("rebooting", "reverting"):
                break
            self.boot()
        return status, told

    def is_open(self):
        return self.p2pctl("status", live=True)[1].get("state") in OPEN_STATES

    # ---- invariant

    def has_new(self):
        """True if the modules of the staged build and their user space are installed."""
        ours = self.loaded("nvidia")
        return bool(ours) and not (self.installed() & {"libcuda1", "nvidia-driver"}) and any(self.file("/usr/lib/x86_64-linux-gnu").glob("libcuda.so.570.148.11"))

    def has_old(self):
        return self.installed() >= self.ground.delivered and self.loaded("nvidia") != ""

    def has_driver(self):
        need(self.run("dpkg", "--audit") == "", "dpkg is left with something half-installed")
        need(self.has_new() or self.has_old(), f"neither the old nor the new driver: modinfo names \"{self.loaded('nvidia')}\", "
             f"missing are {sorted(self.ground.delivered - self.installed())[:5]}")

    def tells_of_changes(self):
        """Checks that status tells of the changes that are there to undo; it may also be an error that says why it cannot."""
        told = self.p2pctl("status", live=True)[1]
        undo = any(self.file(UNDO).glob("*.json"))
        need("state" not in told or not undo or told.get("stays") or told.get("state") in OPEN_STATES or "revert" in told.get("next", ""),
             f"there are changes to undo, and status tells of none: {told.get('state')} {told.get('reason')}")
        return told

    def truth(self):
        told = self.tells_of_changes()
        need("state" in told, f"status: {self.said}")
        undo = any(self.file(UNDO).glob("*.json"))
        ready = self.file("/run/p2pd/ready").exists()
        need(ready == (told["state"] == "ready"), f"status says {told['state']}, the ready file is {'there' if ready else 'not there'}")
        if ready:
            modules = self.loaded_now()
            need(modules and modules == {name: self.srcversion(name) for name in modules}, f"ready with {modules}")
        if told.get("result") == "reverted":
            need(not undo, "status says reverted, and there are undo records")
        if told.get("result") in ("ready", "done"):
            need(undo, "status says that a change is in place, and there is no undo record")
        status, doctor = self.p2pctl("doctor", "geforce-p2p", live=True)
        need("steps" in doctor, f"doctor: {self.said[-1000:]}")
        need((status == 0) == self.has_new() or not ready, f"doctor {status}: {[step for step in doctor['steps'] if step.get('verdict') == 'fail']}")

    def reverts(self, reference=None, without=()):
        nothing = not any(self.file(UNDO).glob("*.json")) and not self.is_open()  # the answer is about the last run then
        status, told = self.settle("revert")
        need(nothing or (status == 0 and (told.get("result") == "reverted" or told.get("changed") is False)), f"revert: {status} {told.get('reason', told)}")
        need(not any(self.file(UNDO).glob("*.json")), "undo records stay")
        self.has_driver()
        need(self.has_old(), "revert did not bring the old driver back")
        self.same(reference, when=["packages"], without=[*NOT_COMPARED, *without])
        now, was = self.menu_now(), reference.menu_now() if reference else self.menu
        need(now == was, f"in /boot: {[str(path) for path in now.keys() | was.keys() if now.get(path) != was.get(path)]}")


# ---- states ----------------------------------------------------------------------------------------------------------

HOOK = "/etc/p2pd/hooks/before-change.d/stop"


def before(machine):
    """A run has begun, and is killed while a hook runs, right before its first change."""
    hook = machine.file(HOOK)
    had = hook.parent.exists()
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch /run/before-change\nsleep 600\n")
    hook.chmod(0o755)
    process, there = machine.start("apply", "geforce-p2p", live=True), machine.file("/run/before-change")
    while process.poll() is None and not there.exists():
        time.sleep(0.01)
    need(machine.kill(process)[0] == -9, f"it ended first: {machine.said[-2000:]}")
    for path in (there, hook):
        path.unlink()
    if not had:
        hook.parent.rmdir()
    need(machine.events() and not any(one[0] == "fixing" for one in machine.events()), machine.events())


def between(machine):
    """The distribution's driver is purged, and the new one is not installed."""
    machine.killed_at(("fixed", "no-packages"), "apply", "geforce-p2p")


def armed(machine):
    status, told = machine.p2pctl("apply", "geforce-p2p", live=True)
    need(status == 0 and told.get("state") == "rebooting", f"{status} {told}")
    need(len(list(machine.entries())) == 2, "no trial entry is armed")


def booted(machine):
    machine.boot()
    need("p2pd.trial=1" in (machine.work / "cmdline").read_text(), "it is no trial boot")


def proven(machine):
    """The proof has passed, and the first change is about to be made permanent."""
    machine.killed_at(("committing", None), "apply", "geforce-p2p")


def ready(machine):
    status, told = machine.p2pctl("apply", "geforce-p2p", live=True)
    need(status == 0 and told.get("result") == "ready", f"{status} {told} {machine.said[-1500:]}")


def reverting(machine):
    """The new driver is removed, and the packages are not back."""
    machine.killed_at(("undone", "new-userspace"), "revert")


STATES = {"before": before, "between": between, "armed": armed, "booted": booted, "proven": proven, "ready": ready, "reverting": reverting}


# ---- events ----------------------------------------------------------------------------------------------------------

class Event:
    """`happens(machine, state)` makes it happen, and may return a function that ends its condition, which holds during the first command
    after it, and during a first revert. `effect`: what it leaves on a delivered machine. `refused`: states whose run is not continued
    after it. `without`: paths that it changes. `reasons`: states at which it cannot happen."""

    def __init__(self, happens, effect=None, refused=(), without=(), reasons=None):
        self.happens, self.effect, self.refused, self.without, self.reasons = happens, effect, refused, without, reasons or {}


OPEN = ("before", "between", "armed", "booted", "proven")


def change_database(machine, *statements):
    with contextlib.closing(sqlite3.connect(machine.file(STATE) / "state.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def upgraded(machine, state):
    """The journalled plans hold a word that the new version does not know."""
    change_database(machine, "UPDATE runs SET resolved=replace(resolved, '\"gate\"', '\"state-of-old\"')")


def downgraded(machine, state):
    """The database is of a later schema."""
    change_database(machine, "PRAGMA user_version=99")


def reinstalled(machine, state):
    """dpkg refuses the removal while there is something to undo; a new installation continues no run by itself."""
    status, said = machine.enter("env", LIBRARIES, "dpkg", "--remove", "p2pd")
    undo = any(machine.file(UNDO).glob("*.json"))
    there = machine.run("dpkg-query", "-W", "-f", "${db:Status-Status}", "p2pd") == "installed"
    need((status != 0) == there == undo and (not undo or "p2pctl revert" in said), f"dpkg --remove p2pd: {status}, {undo}: {said}")
    machine.run("dpkg", "--install", PACKAGE)
    need(undo or not machine.is_open(), f"the run from before the removal is open after the installation: {said}")


def apt_busy(machine, state):
    """Another process has dpkg's lock for longer than p2pd waits."""
    machine.inside = ("perl", "-e", HOLDER, LOCK, HELD_S)
    return lambda: setattr(machine, "inside", ())


def disk_full(machine, state):
    used = os.statvfs(machine.work)
    size = (used.f_blocks - used.f_bfree) * used.f_frsize + (64 << 10)
    subprocess.run(["mount", "-o", f"remount,size={size}", machine.work], check=True)
    return lambda: subprocess.run(["mount", "-o", "remount,size=90%", machine.work], check=True)


def boot_full(machine, state):
    filler = machine.file("/boot/filler")
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    return filler.unlink


def store_damaged(machine, state):
    """One file of each kind that p2pd keeps has a wrong byte: a package of the backup, a file of the build."""
    files = [sorted(machine.file(folder).rglob(glob)) for folder, glob in ((f"{STATE}/way-back", "*.deb"), ("/var/cache/p2pd", "*.run"),
                                                                            ("/var/cache/p2pd/builds", "nvidia*.ko"))]
    for found in filter(None, files):
        with found[0].open("r+b") as file:
            file.seek(found[0].stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0xff]))


def add_kernel(tree, release):
    package = kernel_package(tree, release, next(tree.path.glob("usr/src/linux-headers-*-amd64")))
    tree.run("dpkg", "--install", package)
    tree.file(package).unlink()


def remove_kernel(machine):
    machine.run("apt-get", "--yes", "--quiet", "purge", *(f"linux-{kind}-{machine.ground.kernel}" for kind in ("image", "headers")))


def kernel_removed(machine, state):
    """The kernel that runs is purged, and the machine is booted; not where a trial entry names that kernel: p2pd looks before a restart."""
    remove_kernel(machine)
    if state != "armed":
        machine.boot()


def kernel_added(machine, state):
    add_kernel(machine, NEW)


def clock_back(machine, state):
    """What was written so far is of the future: files of p2pd by a year, and the events and runs of its journal."""
    future = time.time() + 365 * 86400
    for folder in (STATE, "/var/cache/p2pd", "/boot"):
        for path in machine.file(folder).rglob("*"):
            os.utime(path, (future, future), follow_symlinks=False)
    change_database(machine, "UPDATE events SET time=replace(time, '20', '21')", "UPDATE runs SET started=replace(started, '20', '21')")


def cloned(machine, state):
    """The disk is started in another machine: another machine id, and a boot that no run asked for."""
    machine.file("/etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    machine.boot()


def secure_boot(machine, state):
    """The firmware has Secure Boot on from the next boot, until somebody turns it off."""
    variable = machine.work / "sys" / SECURE_BOOT
    variable.parent.mkdir(parents=True, exist_ok=True)
    variable.write_bytes(b"\x06\0\0\0\x01")
    machine.boot()

    def ends():
        variable.unlink()
        machine.boot()
    return ends


def restart_cancelled(machine, state):
    """As after "shutdown -c": the run is paused, and somebody restarts the machine by hand. The worker of that boot goes on with it."""
    status, told = machine.p2pctl("pause", live=True)
    need(status == 0 and told["state"] == "paused", f"{status} {told}")
    machine.boot()
    status, said = machine.enter("env", LIBRARIES, "P2PD_IDLE_S=0", "P2PD_RETRY_S=0", "/usr/libexec/p2pd/p2pd-worker")
    banned = machine.file("/etc/modprobe.d/00-p2pd-trial.conf").exists()
    need(status == 0 and not banned, f"the modules are banned, and the worker has ended: {status} {said}")


def power_cut(machine, state):
    """p2pd continues, and the power is cut in the middle."""
    process = machine.start(*verb(state), live=True)
    time.sleep(1.5)
    machine.kill(process)
    machine.boot()


def database_gone(machine, state):
    """The undo records stay. Where a restart is due, it comes: a new run on that boot would find the modules of the old driver in use."""
    for file in machine.file(STATE).glob("state.db*"):
        file.unlink()
    if state == "armed":
        machine.boot()


NO_RESTART = "no restart is due"
EVENTS = {
    "p2pd upgraded": Event(upgraded, refused=OPEN),
    "p2pd downgraded": Event(downgraded, refused=("before", "between", "armed", "booted", "proven", "ready")),
    "p2pd removed and installed": Event(reinstalled),
    "apt busy": Event(apt_busy),
    "disk full": Event(disk_full),
    "boot full": Event(boot_full),
    "store damaged": Event(store_damaged),
    "kernel removed": Event(kernel_removed, remove_kernel),
    "kernel added": Event(kernel_added, lambda machine: add_kernel(machine, NEW)),
    "clock back": Event(clock_back),
    "machine cloned": Event(cloned, without=["/etc/machine-id"]),
    "Secure Boot on": Event(secure_boot),
    "restart cancelled": Event(restart_cancelled, reasons={state: NO_RESTART for state in STATES if state != "armed"}),
    "power cut": Event(power_cut),
    "database gone": Event(database_gone),
}


# ---- cells -----------------------------------------------------------------------------------------------------------

def verb(state):
    return ("revert",) if state == "reverting" else ("apply", "geforce-p2p")


def cell(machine, event, state, reference):
    over = event.happens(machine, state)
    if over:
        machine.p2pctl(*verb(state), live=True)  # any answer; the machine must boot, and be helped afterwards
        machine.boots()
        over()
    machine.tells_of_changes()
    status, told = machine.settle(*verb(state))
    if state in event.refused:
        need(status != 0 and told.get("next"), f"not refused with a next step: {status} {told}")
    elif state != "reverting":
        given_up = (over or event.effect) and state not in ("proven", "ready") and told.get("result") == "failed" and machine.has_old()
        need(told.get("result") == "ready" or given_up, f"{' '.join(verb(state))}: {status} {told.get('state')} {told.get('reason', told)}")
        machine.has_driver()
        machine.truth()
        if over:
            reverts_under(machine, event, state)
    machine.reverts(reference, event.without)
    machine.truth()


def reverts_under(machine, event, state):
    """Tries the revert under the condition, too: it is refused with nothing changed, or done."""
    over = event.happens(machine, state)
    status, told = machine.p2pctl("revert", live=True)
    try:
        machine.boots()
        machine.has_driver()
    except Failed as error:
        raise Failed(f"after a revert under this condition ({status}: {told.get('reason') or told.get('error')}): {error}") from None
    finally:
        over()


class Table:
    """Runs cells on several threads, and keeps what each shows."""

    def __init__(self, work, ground, saved):
        self.work, self.ground, self.saved, self.shown = work, ground, saved, {}
        self.cases, self.lock = Cases(), threading.Lock()

    def references(self, asked):
        """Delivered machines with an administrator's event."""
        found = {}
        for name in dict.fromkeys(name for name, _ in asked):
            if EVENTS[name].effect:
                found[name] = Sequence(self.work, f"with-{name.replace(' ', '-')}", self.ground, self.ground)
                EVENTS[name].effect(found[name])
        return found

    def run(self, asked, jobs):
        references, cells = self.references(asked), queue.SimpleQueue()
        for one in asked:
            cells.put(one)

        def work_on():
            with contextlib.suppress(queue.Empty):
                while True:
                    self.one(*cells.get_nowait(), references)
        workers = [threading.Thread(target=work_on) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def one(self, name, state, references):
        began, why = time.monotonic(), None
        machine = Sequence(self.work, f"{name}-{state}".replace(" ", "-"), self.saved[state], self.ground)
        try:
            cell(machine, EVENTS[name], state, references.get(name))
        except Exception as error:  # the failure of this cell
            why = str(error) if isinstance(error, Failed) else repr(error)
        with contextlib.suppress(Failed):
            machine.close()
        with self.lock:
            self.shown[name, state] = "ok" if why is None else "fails: " + " ".join(why.split())[:100]
            self.cases.say(f"{name}/{state} ({time.monotonic() - began:.0f} s)", why)


def with_package(tree, package):
    """Installs the package of p2pd, without its dependencies: the libraries are those of lay_program()."""
    folder = tree.work / "p2pd"
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Pre-)?(Depends|Recommends|Suggests):.*\n( .*\n)*", "", control.read_text()))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", folder, tree.file(PACKAGE)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)
    tree.run("dpkg", "--install", PACKAGE)


def prepare(work, root, packages):
    """The delivered machine: two kernels, and the package of p2pd."""
    ground = Tree(work, "ground", root)
    add_kernel(ground, SPARE)
    with_package(ground, max(packages.glob("p2pd_*.deb")))
    ground.with_grub()
    ground.delivered = {name for name in ground.installed() if "nvidia" in name or name == "libcuda1"}
    return ground


def reach(work, ground, states):
    """Sequences saved at each state up to the last of `states`."""
    saved, machine = {}, Sequence(work, "fresh", ground, ground)
    for name, reaches in STATES.items():
        if not any(state in states for state in list(STATES)[list(STATES).index(name):]):
            break
        if saved:
            machine = Sequence(work, f"at-{name}", machine, ground)
        began = time.monotonic()
        reaches(machine)
        machine.boots()
        machine.save()
        saved[name] = machine
        print(f"reached {name} in {time.monotonic() - began:.0f} s", flush=True)
    return saved


def main():
    root, work, words = arguments()
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("--only", action="append", help="EVENT, EVENT/STATE or /STATE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args(words)
    wanted = [one.partition("/") for one in asked.only or ["/"]]
    cells = [(name, state) for name in EVENTS for state in STATES if state not in EVENTS[name].reasons and any(
        event in ("", name) and one in ("", state) for event, _, one in wanted)]
    if not cells:
        raise SystemExit(f"no such cell; events: {', '.join(EVENTS)}; states: {', '.join(STATES)}")
    ground = prepare(work, root, asked.packages)
    table = Table(work, ground, reach(work, ground, {state for _, state in cells}))
    table.run(cells, asked.jobs)
    print("\n" + " | ".join(["event", *STATES]))
    for name, event in EVENTS.items():
        print(" | ".join([name, *(event.reasons.get(state) or table.shown.get((name, state), "not asked for") for state in STATES)]))
    good = sum(shown == "ok" for shown in table.shown.values())
    print(f"\n{len(table.shown)} cells run, {good} hold, {sum(len(event.reasons) for event in EVENTS.values())} with a reason")
    return 1 if table.cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
