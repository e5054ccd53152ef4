# SPDX-License-Identifier: MIT
"""Helpers for scenarios: a machine with p2pd, seen from outside. expected.py: its expected states.

A scenario is a file in scenarios/: the first line of its docstring describes it, CARDS names a topology, STARTS the disk it starts
from ("delivered", or as the scenario of that name left it), and `run(machine)` runs it. It may have SEED, files written at the
first boot; FIRMWARE, instead of BIOS; `around(machine)`, a context in which the machine is switched on.
"""
import contextlib
import io
import json
import pathlib
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass, field

from guest import Guest, GuestError

HERE = pathlib.Path(__file__).resolve().parent
SETTLED = ("ready", "limited", "blocked", "failed", "paused")  # a boot is idle until its proof begins, and after a revert
SETTLE_TIMEOUT_S = 2400
# configuration of an image that becomes ready unattended at its first boot
UNATTENDED = {"/etc/p2pd/p2pd.yaml": "plan: geforce-p2p\napply_on_boot: true\nreboot_delay_s: 0\n"}

# configuration of a machine whose operator applies; arm() changes the delay meanwhile
ATTENDED = {"/etc/p2pd/p2pd.yaml": "plan: geforce-p2p\nreboot_delay_s: 0\n"}

# system partitions that are not mounted are seen below /media, in this command's own namespace; a loader writes random-seed at each boot
LOOK = r"""
export LC_ALL=C; cd /
cat /proc/sys/kernel/random/boot_id /proc/cmdline
mount -t tmpfs none media
ls efi/ > /dev/null 2>&1  # where systemd mounts one once it is used
for device in $(blkid -t TYPE=vfat -o device); do
    findmnt "$device" > /dev/null && continue
    mkdir "media/${device##*/}" && mount -o ro "$device" "media/${device##*/}" || exit
done
places="etc boot $(ls -d efi 2>/dev/null) media"
cat boot/grub/grub.cfg $(find $places -path '*/loader/entries/*') 2>/dev/null | sha256sum
find $places -path boot/grub/grubenv -o -path '*/loader/random-seed' -o -printf '%M %U:%G %p %l\n' | sort
find $places -type f ! -path boot/grub/grubenv ! -path '*/loader/random-seed' -print0 | sort -z | xargs -0 sha256sum
grub-editenv list 2>/dev/null | grep -v '^next_entry=$'
cd /sys/firmware/efi/efivars 2>/dev/null && sha256sum LoaderEntryOneShot-* LoaderEntryDefault-* 2>/dev/null
true
"""

# every file of the root file system, except p2pd's own state and files that a running system writes at any time
FILES = r"""
export LC_ALL=C; cd /
find . -xdev \( -path ./var/lib/p2pd -o -path ./var/cache/p2pd -o -path ./var/log -o -path ./var/tmp -o -path ./tmp -o -path ./var/lib/systemd \) -prune \
    -o -printf '%M %U:%G %p %l\n' -type f -fprint0 /run/files | sort
sort -z /run/files | xargs -0 sha256sum
rm /run/files
"""


class Unexpected(Exception):
    """The machine is not as the scenario says."""


def expect(holds, why):
    if not holds:
        raise Unexpected(why)


def say(text):
    print(f"  [{time.monotonic() - say.start:6.1f} s] {text}", flush=True)


say.start = time.monotonic()


@dataclass
class View:
    """State of the guest, read from inside."""
    boot: str
    cmdline: str
    menu: str  # SHA-256 of the loader's menu
    # every file of /etc, /boot and system partitions with mode, owner and SHA-256; what grubenv and the firmware's variables say
    tree: list = field(repr=False)


def seed_disk(files, to):
    """A tar that serves as a disk: text, or (mode, text), by absolute path."""
    with tarfile.open(to, "w") as tar:
        for path, content in sorted(files.items()):
            mode, text = content if isinstance(content, tuple) else (0o644, content)
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.mode, entry.mtime = mode, int(time.time())
            data = text.encode()
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


class Machine(Guest):
    """A guest with p2pd in it."""

    def __init__(self, folder, cards, seed=None, **rest):
        super().__init__(folder, cards, **rest)
        self.seed_files = seed or {}
        self.shown = {}  # step to the last line shown about it
        self.notes = {}  # for scenarios that start from the end of this one

    def start(self):
        if self.seed_files and not self.path("seed.tar").exists():
            seed_disk(self.seed_files, self.path("seed.tar"))
            self.more_disks = [self.path("seed.tar")]
        super().start()

    # ---- output of p2pd

    def told(self, command, timeout_s=120):
        """The JSON output of a p2pctl command."""
        done = self.ssh(f"p2pctl {command} --json", timeout_s)
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise GuestError(f"p2pctl {command}: status {done.returncode}: {done.stdout.strip()[-500:]}") from error

    def status(self):
        return self.told("status")

    def settle(self, *wanted, timeout_s=SETTLE_TIMEOUT_S):
        """Waits, over reboots, until a run is settled; it must be in one of the states `wanted`. Prints progress meanwhile."""
        deadline = self.now() + timeout_s
        settled = {*SETTLED, *wanted}
        while self.now() < deadline:
            self.wait_boot()
            with contextlib.suppress(GuestError):
                if self.watch(deadline, settled) and (status := self.status())["state"] in settled:
                    say(f"{status['state']}: {status.get('reason', '')} ({status.get('reboots', 0)} reboots)")
                    expect(status["state"] in wanted, f"it is {status['state']}, not {' or '.join(wanted)}: {status.get('reason')}")
                    return status
            time.sleep(2)  # wait for a restart that is due
            self.check_alive()
        raise Unexpected(f"it did not settle in {timeout_s} s")

    def watch(self, deadline, settled):
        """Prints the output of `p2pctl status --watch` until this boot ends or the state is one of `settled`; the latter is True."""
        with self.popen("p2pctl status --watch") as shown:
            stop = threading.Timer(max(deadline - self.now(), 1), shown.kill)
            stop.start()
            try:
                for line in map(str.rstrip, shown.stdout):
                    words = line.split()
                    step = words[1] if line.startswith(" ") and len(words) > 1 else ""
                    if not step or self.shown.get(step) != line:  # each boot reports every step anew
                        say(line)
                    if self.log_writes:
                        self.notes.setdefault("moments", {}).setdefault(line.strip()[:60], self.path("writes").stat().st_size)
                    self.shown[step] = line
                    if words[:1] and words[0] in settled:
                        return True
            finally:
                stop.cancel()
                shown.kill()
        return False

    def apply(self, *wanted, plan="", timeout_s=SETTLE_TIMEOUT_S):
        """Applies a plan and waits for its end, which must be one of the states `wanted`."""
        self.wait_boot()
        before = self.status().get("run")
        self.run(f"p2pctl apply --yes {plan} --no-block")
        self.wait_run(before)
        return self.settle(*wanted, timeout_s=timeout_s)

    def arm(self, verb="apply", delay_s=7200):
        """Runs p2pctl until a trial entry is armed and a restart is announced, which is late: there is time for an event before it."""
        self.wait_boot()
        self.run("systemctl stop p2pd-worker.service || true")  # it reads the configuration when it starts
        self.run(f"sed -i 's/^reboot_delay_s: .*/reboot_delay_s: {delay_s}/' /etc/p2pd/p2pd.yaml")
        self.run(f"p2pctl {verb} --yes --no-block")
        self.wait_until(lambda: self.status()["state"] == "rebooting", "no restart is due")
        self.run("sed -i 's/^reboot_delay_s: .*/reboot_delay_s: 0/' /etc/p2pd/p2pd.yaml")
        armed = self.run("grub-editenv list 2>/dev/null; cat /sys/firmware/efi/efivars/LoaderEntryOneShot-* 2>/dev/null | tr -d '\\0'; true")
        expect("p2pd-trial" in armed, f"no trial entry is armed: {armed}")

    def is_trial(self):
        return "p2pd.trial=1" in self.run("cat /proc/cmdline").split()

    def set_clock_back(self):
        """Sets the clock, also that of the hardware, back by a year."""
        self.run("date -s '-1 year' && hwclock --systohc --utc --noadjfile")

    def wait_until(self, holds, why):
        self.until(holds, why, SETTLE_TIMEOUT_S, 5, Unexpected)

    def wait_logged(self, text, why):
        """Waits until the worker has logged a text on this boot."""
        self.wait_until(lambda: text in self.run("journalctl -q --no-pager -b -u p2pd-worker"), why)

    def wait_run(self, before, timeout_s=120):
        """Waits until the status reports another run than `before`, so that a caller waits for the end of that run."""
        def begun():
            with contextlib.suppress(GuestError):  # the machine may already be restarting
                return self.status().get("run") != before
            return False
        self.until(begun, "no run has begun", timeout_s, 1, Unexpected)

    def restart(self):
        """Reboots as a person would; returns the id of the new boot."""
        boot = self.wait_boot()
        self.ssh("systemctl reboot")
        return self.wait_boot(after=boot)

    def turn_back(self, *wanted):
        self.run("p2pctl revert --yes --no-block")
        return self.settle(*wanted)

    def turn_back_to(self, first):
        """Reverts, and checks that /etc and /boot, the command line and the loaded driver are as delivered."""
        from expected import expect_as_at_first  # it uses this file
        status = self.turn_back("idle")
        expect(status["result"] == "reverted", str(status)[:400])
        expect_as_at_first(self.look("reverted"), first)
        loaded = self.run("cat /sys/module/nvidia/version")
        expect(loaded == "570.123.11", f"the loaded driver is {loaded}")

    # ---- contents

    def look(self, when):
        boot, cmdline, menu, *tree = self.run(f"unshare --mount sh -c {shlex.quote(LOOK)}", 300).splitlines()
        view = View(boot, cmdline, menu.split()[0], tree)
        say(f"{when}\n      boot id   {view.boot}\n      menu      {view.menu}\n      cmdline   {view.cmdline}")
        return view

    def note_ready(self, first):
        """Notes the state that scenarios that start here, and power cuts up to here, are compared with."""
        self.notes |= {"first": first, "ready": self.look("ready"), "packages": self.packages()}
        if self.log_writes:
            self.notes["written"] = self.path("writes").stat().st_size

    def first_view(self):
        self.wait_boot()
        return self.look("at first")

    def wait_hanging(self, quiet_s=60):
        """Waits until the console has been silent for a while: this boot hangs."""
        end, since = self.console_end(), self.now()
        while self.now() - since < quiet_s:
            time.sleep(1)
            if self.console_end() != end:
                end, since = self.console_end(), self.now()

    def copy_in_file(self, path, to):
        with open(path, "rb") as file:
            self.run(f"cat > {to}", 120, file)

    def newest_kernel(self):
        """The newest kernel of this machine's Debian, and its packages, in the archives that this host uses."""
        newest, *packages = self.of_system("echo $newest $newest_packages").split()
        return newest, packages

    def of_system(self, script, *words):
        """What a shell script prints that knows the variables of this machine's file in systems/."""
        before = f'cd {HERE} && . ./archives.sh && . ./kernels.sh && . "systems/$0" && '
        return subprocess.run(["bash", "-c", before + script, (self.machine / "system").read_text().strip(), *words], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def offer_packages(self, names):
        """Makes an apt archive in the guest with packages from the archive that this host uses."""
        with tempfile.TemporaryDirectory(prefix="p2pd-packages.") as folder:
            self.of_system(f'cd {folder} && APT_CONFIG=${{apt_config:-}} apt-get -o APT::Sandbox::User=root --quiet=2 download "$@"', *names)
            index = subprocess.run(["dpkg-scanpackages", "."], cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            pathlib.Path(folder, "Packages").write_bytes(index)
            self.copy_in(folder, "/srv/offered")
        self.run("echo 'deb [trusted=yes] file:///srv/offered ./' > /etc/apt/sources.list.d/offered.list && apt-get --quiet=2 update", 300)

    def files(self):
        """Lines about every file outside p2pd's own state: mode and owner, and SHA-256."""
        return self.run(FILES, 900).splitlines()

    def packages(self):
        return self.run("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n'").splitlines()

    def explain(self):
        """Prints diagnostics of a failed scenario; the guest may no longer answer."""
        say("the console ends in\n" + self.console()[-1500:])
        with contextlib.suppress(GuestError):
            print(self.ssh("p2pctl status; p2pctl history; journalctl -q --no-pager -b -u p2pd-worker -u p2pd-job | tail -60; cat /proc/cmdline; "
                           "dmesg | grep -iE 'nvrm|nvidia' | tail").stdout, flush=True)


# ---- seeds -----------------------------------------------------------------------------------------------------------

def quirks(what):
    """Seed of simulated cards that differ from good ones."""
    return {"/etc/driver-world/quirks.json": json.dumps(what)}


def catalogue_drop_in(name):
    """Replaces the working drop-in of the driver world with another one."""
    return {"/root/seed": (0o755, f"#!/bin/sh\ncp /srv/driver-world/catalogue/{name}.yaml /etc/p2pd/catalogue.d/driver-world.yaml\n")}


def catalogue_edit(expression):
    """Edits the drop-in with sed."""
    return {"/root/seed": (0o755, f"#!/bin/sh\nsed -i '{expression}' /etc/p2pd/catalogue.d/driver-world.yaml\n")}
