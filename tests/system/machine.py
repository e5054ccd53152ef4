# SPDX-License-Identifier: MIT
"""A booted systemd in a container with a throw-away overlay: start it, run commands in it, follow its reboots.

    root, work, words = arguments()
    with Machine(work, "name", [installed(root, build, work), root]) as machine:
        machine.run("systemctl --failed")
        machine.reboot()

A script calls arguments() of namespaces.py first, which restarts it with mounts and processes of its own: what it mounts or
starts ends with it, however it ends. Several machines may be up at once; each has a network of its own, or, after
arguments(network=True), all share one with the script, which has nothing but the loopback device. There is no kernel and no boot
loader: /proc/cmdline is what GRUB would give, from the first entry of grub.cfg, or from the one that grub-reboot chose.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid

from namespaces import CGROUPS, remove_cgroup

HERE = pathlib.Path(__file__).resolve().parent
ENTER = HERE.parent / "sim/driver_world/enter"
REBOOT = 133            # exit status of systemd-nspawn when the machine asks for a reboot
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C", "TERM": "dumb"}
POLL_S = 0.05
PATIENCE_S = 60


class MachineError(Exception):
    """The machine did not do what was asked of it."""


# ---- contents ---------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def overlay(work, upper, lowers):
    """Mounts `lowers`, topmost first, as a tree whose changes go to `upper`."""
    for folder in (upper, work / "overlay", work / "tree"):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={':'.join(map(str, lowers))},upperdir={upper},workdir={work}/overlay", work / "tree"], check=True)
    try:
        yield work / "tree"
    finally:
        subprocess.run(["umount", "--lazy", work / "tree"], check=True)


def below(pid):
    """The processes that a process started, those that they started, and so on."""
    found = []
    with contextlib.suppress(OSError):
        for child in map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [child, *below(child)]
    return found


# ---- the machine ------------------------------------------------------------------------------------------------------

class Machine:
    """An overlay of trees, topmost first. `files`: path to text of files written before it boots. `network`: "private", or
    "shared" with the script."""

    def __init__(self, work, name, lowers, files=None, network="private"):
        self.name, self.work, self.lowers, self.files, self.network = name, work / name, lowers, files or {}, network
        self.cgroup = f"{os.environ['SYSTEMD_TESTS_CGROUP']}/{name}"
        self.upper = self.work / "upper"
        self.path = self.work / "tree"
        self.boots = []      # the kernel command line of each
        self.leader = None   # its process 1, as seen here
        self.nspawn = None
        self.running = False
        self.mounts = contextlib.ExitStack()
        self.changed = threading.Condition()
        self.thread = None

    def __enter__(self):
        self.mounts.enter_context(overlay(self.work, self.upper, self.lowers))
        try:
            for path, text in {"/etc/machine-id": uuid.uuid4().hex + "\n", **self.files}.items():
                self.write(path, text)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.cut()
        for folder in CGROUPS:
            remove_cgroup(folder / self.cgroup)
        self.mounts.close()
        shutil.rmtree(self.work, ignore_errors=True)

    # ---- boots

    def start(self):
        """Boots it, and waits until it is up."""
        self.running = True
        self.thread = threading.Thread(target=self.follow, daemon=True)
        before = len(self.boots)
        self.thread.start()
        self.wait_boot(after=before)

    def follow(self):
        """Boots it, and again as often as it asks for a reboot."""
        while self.running:
            line = self.grub()
            (self.work / "command-line").write_text(line + "\n")
            enter = "".join(f"echo 0 > {folder}/$0/cgroup.procs && " for folder in CGROUPS)
            make = "".join(f"mkdir -p {folder}/$0 && " for folder in CGROUPS)
            with open(self.work / "console", "ab") as console:
                process = subprocess.Popen(
                    ["sh", "-c", make + enter + 'exec "$@"', self.cgroup,
                     "systemd-nspawn", "--quiet", "-D", self.path, "-M", self.name, "--boot", "--register=no", "--keep-unit",
                     *(["--private-network"] if self.network == "private" else []),
                     "--link-journal=no", "--console=read-only", "--resolv-conf=off", "--timezone=off",
                     f"--bind-ro={self.work}/command-line:/run/command-line"],
                    stdin=subprocess.DEVNULL, stdout=console, stderr=console)
            leader = self.leader_of(process)
            with self.changed:
                self.nspawn, self.leader = process, leader
                if leader:
                    self.boots.append(line)
                self.changed.notify_all()
            status = process.wait()
            with self.changed:
                self.leader = None
                self.running = self.running and status == REBOOT
                self.changed.notify_all()

    @staticmethod
    def leader_of(nspawn):
        """Process 1 of a starting machine; None if it ended."""
        while nspawn.poll() is None:
            with contextlib.suppress(OSError):
                for pid in below(nspawn.pid):
                    if pathlib.Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                        return pid
            time.sleep(0.005)
        return None

    def grub(self):
        """The command line that GRUB would start the kernel with: of the entry chosen for one boot, which is cleared, or of the first."""
        text = (self.path / "boot/grub/grub.cfg").read_text()
        environment = self.path / "boot/grub/grubenv"
        chosen = re.search(r"(?m)^next_entry=(.+)$", environment.read_text() if environment.exists() else "")
        if chosen:
            subprocess.run(["chroot", self.path, "grub-editenv", "/boot/grub/grubenv", "set", "next_entry="], check=True)
            custom = self.path / "boot/grub/custom.cfg"
            entry = re.search(rf"(?s)--id {re.escape(chosen[1])} \{{(.*)", custom.read_text() if custom.exists() else "")
            text = entry[1] if entry else text  # GRUB takes the default where there is no such entry
        kernel, arguments = re.search(r"(?m)^\s*linux\s+(\S+)(.*)$", text).groups()
        return " ".join(f"BOOT_IMAGE={kernel} {arguments}".replace("\\", "").split())

    def cut(self):
        """Ends it at once, as if it were unplugged; start() boots it again. What it wrote stays, synced or not."""
        with self.changed:
            self.running = False
        for _ in range(2):  # it may have just started
            with contextlib.suppress(ProcessLookupError):
                if self.leader:
                    os.kill(self.leader, signal.SIGKILL)
            if self.thread:
                self.thread.join(5)
                if not self.thread.is_alive():
                    self.thread = None
            if self.thread and self.nspawn:
                self.nspawn.kill()

    def wait_boot(self, after, timeout_s=PATIENCE_S):
        """Waits until it is up after more than `after` boots; returns their number."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while len(self.boots) <= after or not self.leader:
                if not self.running or not self.changed.wait(max(deadline - time.monotonic(), 0)):
                    raise MachineError(f"no boot in {timeout_s} s; the console ends in\n{self.console()[-2000:]}")
        while time.monotonic() < deadline:
            state = self.shell("systemctl is-system-running --wait", timeout_s=timeout_s).stdout.strip()
            if state in ("running", "degraded"):
                return len(self.boots)
            time.sleep(POLL_S)
        raise MachineError(f"the boot has not ended in {timeout_s} s; the console ends in\n{self.console()[-2000:]}")

    def reboot(self):
        """Reboots it, as a person at the keyboard would."""
        before = len(self.boots)
        self.shell("systemctl reboot")
        return self.wait_boot(before)

    # ---- commands

    def argv(self, command, user=None):
        if not self.leader:
            raise MachineError(f"it is not up: {command}")
        become = ["setpriv", "--reuid", user, "--regid", self.group_of(user), "--clear-groups", "--no-new-privs", "--inh-caps=-all"] if user else []
        return ["nsenter", "-t", str(self.leader), "--all", "env", "-i", *(f"{key}={value}" for key, value in ENVIRONMENT.items()),
                *become, "sh", "-c", command]

    def seen(self, pid):
        """Process id, in this namespace, of a process of the machine."""
        namespace = os.readlink(f"/proc/{self.leader}/ns/pid")
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                if (re.search(r"(?m)^NSpid:.*\t(\d+)$", status.read_text()) or [0, ""])[1] == str(pid) and \
                        os.readlink(status.parent / "ns/pid") == namespace:
                    return int(status.parent.name)
        raise MachineError(f"no process {pid}")

    def group_of(self, user):
        return next(line.split(":")[3] for line in (self.path / "etc/passwd").read_text().splitlines() if line.startswith(user + ":"))

    def shell(self, command, user=None, timeout_s=PATIENCE_S):
        """Runs a shell command in it, outside of any login session; `stdout` has its output, errors too."""
        try:
            return subprocess.run(self.argv(command, user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise MachineError(f"no end after {timeout_s} s: {command}\n{error.stdout}") from error

    def run(self, command, user=None, timeout_s=PATIENCE_S):
        """Runs a shell command that must succeed; returns its output."""
        done = self.shell(command, user, timeout_s)
        if done.returncode != 0:
            raise MachineError(f"status {done.returncode}: {command}\n{done.stdout.strip()[-3000:]}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def beside(self, command, user=None):
        """Runs a shell command while the `with` block does."""
        process = subprocess.Popen(self.argv(command, user), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace")
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
                for pid in below(process.pid):  # nsenter waits for them
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=2)
                    break

    def until(self, condition, what, timeout_s=PATIENCE_S):
        """Waits, over reboots, until a shell command succeeds or a function returns something true, which is returned."""
        deadline, found = time.monotonic() + timeout_s, None
        while time.monotonic() < deadline:
            with contextlib.suppress(MachineError):
                if callable(condition):
                    found = condition()
                else:
                    found = self.shell(condition).returncode == 0
                if found:
                    return found
            time.sleep(POLL_S)
        raise MachineError(f"not in {timeout_s} s: {what}")

    # ---- contents

    def write(self, path, text):
        file = self.path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path):
        return (self.path / path.lstrip("/")).read_text()

    def console(self):
        """Output on the console, all boots."""
        try:
            shown = (self.work / "console").read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
