# SPDX-License-Identifier: MIT
"""A virtual machine with a throw-away disk: start it, run commands in it, cut its power, read its console.

    with Guest(machine_folder, cards="two-behind-switch") as guest:
        boot = guest.wait_boot()
        guest.run("update-grub")
        guest.cut_power()
        guest.wait_boot(after=boot)

KVM is used if this user may use it; otherwise the machine is emulated (TCG) and slow. Deadlines are generous, and count the machine's
own time. It has no network.
A power cut is a reset between two instructions: whatever Linux in the guest still held in memory, unwritten file data
above all, is lost. Data that it had handed to the disk stays, flushed or not: the disk has a cache that survives.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import topology
import uefi

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sim"))
from terminal import open_terminal, shown  # noqa: E402

QEMU = ["qemu-system-x86_64", "-nographic", "-nodefaults", "-device", "virtio-rng-pci,bus=pcie.0"]
OVMF = "/usr/share/OVMF"  # VARS .ms: Secure Boot is on, with the keys of the vendors and of Debian's shim; CODE .ms: it can be
# p2pd refuses guests: a machine with cards reports that it is none
BARE_METAL = [word for kind, names in ((0, "vendor=p2pd"), (1, "manufacturer=p2pd,product=rehearsal"), (2, "manufacturer=p2pd"), (3, "manufacturer=p2pd"))
              for word in ("-smbios", f"type={kind},{names}")]
# under emulation, clearing pages byte by byte (erms), a switch at each kernel access to user memory (smap) and a fifth level of page
# tables (la57) cost a quarter to a third of the time of update-initramfs, depmod and tar
PROCESSOR = "max,-erms,-fsrm,-smap,-smep,-umip,-pku,-la57"
BOOT_TIMEOUT_S = 300
POLL_S = 0.3


class GuestError(Exception):
    """The guest did not do what was asked of it."""


def accelerators(kvm="/dev/kvm", cpuinfo="/proc/cpuinfo"):
    """QEMU's options for the accelerators to try, in this order. A /dev/kvm on a processor without virtualization opens, and hangs."""
    tcg = ["-accel", "tcg,thread=multi,tb-size=512"]
    able = re.search(r"^flags\s*:.*\b(vmx|svm)\b", pathlib.Path(cpuinfo).read_text(), re.MULTILINE)
    return ["-accel", "kvm", *tcg] if able and os.access(kvm, os.R_OK | os.W_OK) else tcg


def waited_s(process):
    """Seconds that this process's longest-waiting thread has waited for a processor of this host (proc(5), schedstat)."""
    waits = [0]
    for file in pathlib.Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waits.append(int(file.read_text().split()[1]))
    return max(waits) / 1e9


class Guest:
    processors = 2

    def __init__(self, machine, cards=None, firmware=None, memory_mib=4096):
        """`machine`: a folder with a disk and id; the guest gets a throw-away copy of it; `cards`: a topology, or its name;
        `firmware`: bios; uefi; secure-boot: UEFI with the vendors' keys; secure-boot-enrolled: also with the key that
        DKMS made in this machine; or secure-boot-own: with that key and the owner's (db.der), and no vendor's. A machine that has
        one of its own (a file `firmware`) keeps it. The variables of UEFI are the guest's: they stay over reboots and power cuts."""
        self.machine = pathlib.Path(machine)
        self.cards = topology.read(cards) if isinstance(cards, str) else cards
        own = self.machine / "firmware"
        self.firmware = own.read_text().strip() if own.exists() else firmware or "bios"
        self.memory_mib = memory_mib
        self.more_disks = []  # raw ones, read only
        self.log_writes = False  # to `writes`, in the guest's order, with its flushes (cuts.py), and the firmware's variables meanwhile
        self.servers = {}     # "10.0.2.100:80" in the guest to a port of this host
        self.folder = None
        self.process = None
        self.lost_s = 0  # seconds that its ended processes had waited for this host
        self.port = 0

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="p2pd-vm.")
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name, name)

    def hardware(self):
        """Arguments for processor, memory and PCI bus, and the environment variables that they need."""
        words, environment = ["-smp", str(self.processors), "-m", str(self.memory_mib), *self.firmware_words()], []
        if self.cards:
            device = subprocess.run([HERE / "gpu/build"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
            environment = [f"LD_PRELOAD={device}"]
            vendor = topology.VENDORS[self.cards.get("iommu")]
            words += ["-cpu", f"{PROCESSOR},vendor={vendor},-hypervisor", *BARE_METAL, *topology.arguments(self.cards, self.memory_mib)]
        else:
            words += ["-cpu", PROCESSOR]
        return words, environment

    def start(self):
        """Starts the machine on a fresh overlay of its disk, or on the one it was stopped with."""
        disk = self.path("disk.qcow2")
        if not disk.exists():
            base = next(self.machine.glob("disk.*"))
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", base.suffix[1:], "-b", base, disk], check=True)
        self.port = free_port()
        hardware, environment = self.hardware()
        forwards = "".join(f",guestfwd=tcp:{address}-tcp:127.0.0.1:{port}" for address, port in self.servers.items())
        more = [word for number, path in enumerate(self.more_disks) for word in (
            "-drive", f"if=none,id=more{number},file={path},format=raw,readonly=on", "-device", f"virtio-blk-pci,bus=pcie.0,drive=more{number}")]
        with open(self.path("qemu.log"), "ab") as log:
            # setpriv: the machine ends with this process, however that ends
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "env", *environment, *QEMU, *accelerators(), *hardware,
                 *self.disk_words(disk), *more,
                 "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22" + forwards,
                 "-device", "virtio-net-pci,bus=pcie.0,netdev=net,romfile=",
                 "-chardev", f"file,id=console,append=on,path={self.path('console')}", "-serial", "chardev:console",
                 "-qmp", f"unix:{self.path('qmp')},server=on,wait=off"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if self.log_writes and self.path("variables").exists():
            threading.Thread(target=self.log_variables, args=[self.process], daemon=True).start()

    def log_variables(self, process):
        """Keeps a copy of the firmware's variables after each change, named after the length of `writes` then."""
        variables, last = self.path("variables"), 0
        with contextlib.suppress(FileNotFoundError):  # the folder ends before this thread does
            while process.returncode is None:
                if (changed := variables.stat().st_mtime_ns) != last:
                    last = changed
                    shutil.copy(variables, self.path(f"variables.{self.path('writes').stat().st_size}"))
                time.sleep(POLL_S)

    def firmware_words(self):
        if self.firmware == "bios":
            return ["-machine", "q35"]
        variables, kept = self.path("variables"), self.machine / "variables"
        if not variables.exists():
            vendors = ".ms" if self.firmware in ("secure-boot", "secure-boot-enrolled") else ""
            shutil.copy(kept if kept.exists() else f"{OVMF}/OVMF_VARS_4M{vendors}.fd", variables)
            if not kept.exists():
                self.enrol(variables)
        secure = self.firmware != "uefi"
        return ["-machine", "q35,smm=on" if secure else "q35", "-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={512 << 10}",
                *(["-global", "driver=cfi.pflash01,property=secure,value=on"] if secure else []),
                "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={OVMF}/OVMF_CODE_4M{'.ms' if secure else ''}.fd",
                "-drive", f"if=pflash,format=raw,unit=1,file={variables}"]

    def enrol(self, variables):
        """Adds keys to the firmware's variables."""
        if self.firmware == "secure-boot-enrolled":
            uefi.enrol(variables, (self.machine / "mok.pub").read_bytes())
        if self.firmware == "secure-boot-own":
            uefi.enrol_own(variables, (self.machine / "db.der").read_bytes(), (self.machine / "mok.pub").read_bytes())

    def disk_words(self, disk):
        # no-flush: flushes matter only if this host itself loses power; `writes` records each of them all the same
        words = ["-blockdev", f"driver=qcow2,node-name=live,discard=unmap,cache.no-flush=on,file.driver=file,file.filename={disk}"]
        node, more = "live", ""
        if self.log_writes:
            self.path("writes").touch()
            words += ["-blockdev", f"driver=blklogwrites,node-name=logged,file=live,log.driver=file,log.filename={self.path('writes')}"]
            # merged requests have up to IOV_MAX parts, to which blklogwrites adds two: the guest would see an I/O error
            node, more = "logged", ",request-merging=off"
        return [*words, "-device", f"virtio-blk-pci,bus=pcie.0,drive={node},write-cache=on{more}"]

    def stop(self):
        """Switches the machine off as if it were unplugged; its disk stays until the `with` block ends."""
        if self.process:
            self.lost_s += waited_s(self.process)
            self.process.kill()
            self.process.wait()
            self.process = None

    def power_off(self):
        """Shuts the machine down as a person would; it must switch itself off."""
        self.ssh("systemctl poweroff")
        try:
            self.process.wait(BOOT_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise GuestError("it does not switch itself off") from error
        self.stop()

    def cut_power(self):
        """Resets the machine at once; it boots again by itself."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(30)
            monitor.connect(str(self.path("qmp")))
            with monitor.makefile("rw") as stream:
                stream.readline()
                for command in ("qmp_capabilities", "system_reset"):
                    stream.write(json.dumps({"execute": command}) + "\n")
                    stream.flush()
                    while "return" not in (answer := json.loads(stream.readline())):
                        if "error" in answer:
                            raise GuestError(f"{command}: {answer['error']['desc']}")

    def now(self):
        """Seconds of the machine's own time, which stops while it waits for a processor of this host."""
        return time.monotonic() - self.lost_s - (waited_s(self.process) if self.process else 0)

    def until(self, holds, why, timeout_s=BOOT_TIMEOUT_S, poll_s=POLL_S, error=GuestError):
        """Waits until `holds` returns something true, and returns that."""
        deadline = self.now() + timeout_s
        while not (found := holds()):
            self.check_alive()
            if self.now() > deadline:
                raise error(f"{why} in {timeout_s} s")
            time.sleep(poll_s)
        return found

    def ssh_argv(self, command):
        return ["ssh", "-q", "-F", "none", "-i", self.machine / "id", "-p", str(self.port),
                "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                "-o", "KexAlgorithms=curve25519-sha256", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6",
                "root@127.0.0.1", command]

    def ssh(self, command, timeout_s=60, stdin=subprocess.DEVNULL):
        """Runs a shell command in the guest and returns the completed process; status 255: the guest was not reached."""
        self.check_alive()
        deadline = self.now() + timeout_s
        with subprocess.Popen(self.ssh_argv(command), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace") as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    said, _ = process.communicate(timeout=1)
                    return subprocess.CompletedProcess(command, process.returncode, said)
                if self.now() > deadline:
                    process.kill()
                    raise GuestError(f"no end after {timeout_s} s: {command}")

    def popen(self, command):
        """Starts a shell command in the guest; its output can be read line by line from `stdout`."""
        return subprocess.Popen(self.ssh_argv(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")

    def typed(self, command, *exchanges, columns=80, timeout_s=1800):
        """Runs a command on a terminal of the guest, of 24 lines. Each of `exchanges` is a text to wait for, and the keys to type then. Returns
        the exit status and the text shown, without colours and cursor movements."""
        person, program = open_terminal(columns=columns)
        ssh, *words = self.ssh_argv(command)
        text, left, deadline = "", list(exchanges), self.now() + timeout_s
        with subprocess.Popen([ssh, "-tt", *words], stdin=program, stdout=program, stderr=program, start_new_session=True) as process:
            for piece in shown(process, person, program):
                text += re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", piece.decode(errors="replace"))
                if left and left[0][0] in text:
                    os.write(person, left.pop(0)[1].encode())
                if self.now() > deadline:
                    process.kill()
                    raise GuestError(f"no end after {timeout_s} s: {command}: {text[-500:]}")
        os.close(program)
        os.close(person)
        if left:
            raise GuestError(f"{command}: never shown: {left[0][0]}: {text[-500:]}")
        return process.returncode, text

    def run(self, command, timeout_s=60, stdin=subprocess.DEVNULL):
        """Runs a shell command in the guest and returns what it printed; it must succeed."""
        done = self.ssh(command, timeout_s, stdin)
        if done.returncode != 0:
            raise GuestError(f"status {done.returncode}: {command}\n{done.stdout.strip()}")
        return done.stdout.strip()

    def copy_in(self, tree, to="/"):
        """Copies the contents of a folder over one of the guest, owned by root."""
        tar = ["tar", "-C", tree, "--owner=0", "--group=0", "-cf", "-", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packer:
            self.run(f"mkdir -p {to} && tar -C {to} --no-overwrite-dir -xf - && sync", 600, packer.stdout)
        if packer.returncode != 0:
            raise GuestError(f"cannot pack {tree}")

    def wait_boot(self, after=None, timeout_s=BOOT_TIMEOUT_S):
        """Waits until the guest answers on a boot other than `after`; returns the boot id."""
        def boot():
            answer = self.ssh("cat /proc/sys/kernel/random/boot_id")
            found = answer.stdout.strip()
            return found if answer.returncode == 0 and re.fullmatch(r"[0-9a-f-]{36}", found) and found != after else None
        return self.until(boot, "no new boot", timeout_s)

    def console(self, since=0):
        """Output on the serial console, from an offset on, without control sequences that move the cursor."""
        try:
            shown = self.path("console").read_bytes()[since:].decode(errors="replace")
        except FileNotFoundError:
            return ""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r| {3,}", "", shown)

    def console_end(self):
        """Offset of the console's next output."""
        return self.path("console").stat().st_size

    def wait_console(self, text, since, timeout_s=BOOT_TIMEOUT_S):
        """Waits until the console shows a text beyond an offset."""
        self.until(lambda: text in self.console(since), f"no '{text}' on the console", timeout_s)

    def check_alive(self):
        if self.process.poll() is not None:
            log = self.path("qemu.log").read_text(errors="replace").strip()
            raise GuestError(f"qemu ended with status {self.process.returncode}: {log}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
