# SPDX-License-Identifier: MIT
"""A system bus of one's own with p2pd on it: p2pd, p2pd-walk, p2pctl and whom they talk to, on a machine that is a directory.

What of the machine they read or change lies in `tree`: each process gets a mount namespace in which tree/etc, boot,
run, proc/cmdline and the boot id are those of "/", and programs of `tools` come before others of the same name. The
rest is this machine's own, so plans for it may name only steps that stay within these: see PLANS.
"""
import contextlib
import io
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

sys.path.append("/usr/lib/python3/dist-packages")  # dbus_next, for a python3 that is not Debian's
from dbus_next import Message, MessageFlag, MessageType, Variant  # noqa: E402
from dbus_next._private.unmarshaller import Unmarshaller  # noqa: E402

from tree import boot, noted, write  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
P2PD, GUEST, NOBODY = 64321, 64322, 65534  # user ids inside
NAME, PATH, MANAGER = "org.p2pd1", "/org/p2pd1", "org.p2pd1.Manager"
PROPERTIES, DBUS = "org.freedesktop.DBus.Properties", "org.freedesktop.DBus"

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <auth>EXTERNAL</auth>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.PolicyKit1"/>
    <allow send_destination="org.freedesktop.login1"/>
  </policy>
  <policy user="root">
    <allow own="org.freedesktop.PolicyKit1"/>
    <allow own="org.freedesktop.login1"/>
  </policy>
  <!-- the bus must not be what holds a flood back: that is p2pd's to stand; and who connects must talk soon -->
  <limit name="max_replies_per_connection">50000</limit>
  <limit name="auth_timeout">2000</limit>
  <include>{policy}</include>
</busconfig>
"""

USERS = f"root:x:0:0::/root:/bin/sh\np2pd:x:{P2PD}:{P2PD}::/:/usr/sbin/nologin\nnobody:x:{NOBODY}:{NOBODY}::/:/usr/sbin/nologin\nguest:x:{GUEST}:{GUEST}::/:/bin/sh\n"
GROUPS = f"root:x:0:\ntty:x:5:\np2pd:x:{P2PD}:\nguest:x:{GUEST}:\nnogroup:x:{NOBODY}:\n"

INSIDE = """set -e
for path in etc boot run proc/cmdline proc/sys/kernel/random/boot_id; do mount --bind "$0/tree/$path" "/$path"; done
mount --bind "$0/tools" /usr/local/sbin
exec "$@" """

# "prove" only looks, "work" changes a file, "arguments" wants a restart, "stuck" a person. Of each the last step
# waits while the file `hold` exists: see Bus.hold().
STEPS = {
    "options": "{state: options, title: module options, check: modprobe-options, fix: modprobe-options,"
               " with: {module: nvidia, options: {NVreg_EnableMSI: 1}}}",
    "arguments": "{state: arguments, title: kernel arguments, check: kernel-cmdline, fix: kernel-cmdline,"
                 " with: {arguments: [iommu=pt]}}",
    "stuck": "{state: stuck, title: an argument that only a person can give, check: kernel-cmdline,"
             " with: {arguments: [nobody.gives=1]}}",
    "proof": "{state: proof, title: the benchmark, check: p2p-bench}",
}
PLANS = {"prove": ["proof"], "work": ["options", "proof"], "arguments": ["options", "arguments", "proof"],
         "stuck": ["options", "stuck"]}

BENCH = """#!/bin/sh
while [ -e /etc/hold ]; do : >/run/held; sleep 0.05; done
rm -f /run/held
[ ! -e /etc/broken ] && proven=true || proven=false
echo '{"judgement": {"proven": '$proven', "summary": "the stand-in of the tests says '$proven'"}}'
"""

GRUB_MKCONFIG = """#!/bin/sh
. /etc/default/grub
for file in /etc/default/grub.d/*.cfg; do [ -e "$file" ] && . "$file"; done
cat <<END
if [ "\\${next_entry}" ] ; then
  set default="\\${next_entry}"
  set next_entry=
  save_env next_entry
else
  set default="0"
fi
menuentry 'Debian' --class debian --id debian {
  linux /boot/vmlinuz root=/dev/vda ro $GRUB_CMDLINE_LINUX_DEFAULT
  initrd /boot/initrd.img
}
if [ -f  \\${config_directory}/custom.cfg ]; then source \\${config_directory}/custom.cfg; fi
END
"""


def make_machine(place):
    """A Debian machine that boots by GRUB, as far as PLANS look at it, in place/tree and place/tools."""
    tree, tools = place / "tree", place / "tools"
    write(tree / "etc/passwd", USERS)
    write(tree / "etc/group", GROUPS)
    write(tree / "etc/nsswitch.conf", "passwd: files\ngroup: files\n")
    write(tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    write(tree / "etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    write(tree / "etc/modprobe.d/nvidia.conf", "options nvidia NVreg_UsePageAttributeTable=1\n")
    write(tree / "etc/p2pd/p2pd.yaml", "plan: work\nlog_level: debug\n")
    for name, steps in PLANS.items():
        text = "".join(f"  - {STEPS[step]}\n" for step in steps)
        write(tree / f"etc/p2pd/plans/{name}.yaml", f"name: {name}\ntitle: {name} of the tests\nsteps:\n{text}")
    for name in ("vmlinuz", "initrd.img"):
        write(tree / "boot" / name, name)
    (tree / "run/systemd/inhibit").mkdir(parents=True)
    (tree / "run/mount").mkdir()  # mount(8) would make it
    write(tools / "grub-mkconfig", GRUB_MKCONFIG, 0o755)
    write(tools / "grub-probe", "#!/bin/sh\necho ext2\n", 0o755)
    write(tools / "update-initramfs", "#!/bin/sh\n", 0o755)
    write(tools / "p2p-bench", BENCH, 0o755)
    menu = subprocess.run(["sh", "-c", GRUB_MKCONFIG.replace("/etc/", f"{tree}/etc/")], check=True, capture_output=True)
    write(tree / "boot/grub/grub.cfg", menu.stdout, 0o444)
    subprocess.run(["grub-editenv", tree / "boot/grub/grubenv", "create"], check=True)
    boot(tree, "quiet")


class BusError(Exception):
    """An error reply: its name and its words."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name, self.text = name, text


class Client:
    """A connection to the bus that does one thing after the other, so that a test knows what it has sent and read."""

    def __init__(self, address, uid=0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.serial, self.signals, self.replies, self.bytes = 0, [], {}, b""
        mine = os.geteuid(), os.getegid()
        try:  # the bus asks the kernel who connected
            os.setegid(uid)
            os.seteuid(uid)
            self.socket.connect(address.removeprefix("unix:path="))
        finally:
            os.seteuid(mine[0])
            os.setegid(mine[1])
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(uid).encode().hex().encode() + b"\r\nBEGIN\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            piece = self.socket.recv(1)
            if not piece:
                raise ConnectionError(f"the bus does not take user {uid}")
            answer += piece
        if not answer.startswith(b"OK "):
            raise ConnectionError(answer.decode())
        self.name = self.call("Hello", interface=DBUS, destination=DBUS, path="/org/freedesktop/DBus")[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, member, signature="", *body, interface=MANAGER, destination=NAME, path=PATH, flags=MessageFlag.NONE):
        """The serial number of the call."""
        self.serial += 1
        message = Message(destination=destination, path=path, interface=interface, member=member, signature=signature,
                          body=list(body), flags=flags, serial=self.serial)
        self.socket.sendall(message._marshall())
        return self.serial

    def receive(self, timeout):
        """The next message; None where none comes in time."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self.bytes) >= 16:
                order = "little" if self.bytes[:1] == b"l" else "big"
                body, fields = (int.from_bytes(self.bytes[at:at + 4], order) for at in (4, 12))
                size = 16 + (fields + 7) // 8 * 8 + body
                if len(self.bytes) >= size:
                    message, self.bytes = self.bytes[:size], self.bytes[size:]
                    return Unmarshaller(io.BytesIO(message)).unmarshall()
            if not select.select([self.socket], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise ConnectionError("the bus has closed the connection")
            self.bytes += piece

    def take(self, timeout):
        """Reads a message and keeps it where it belongs; whether one came."""
        message = self.receive(timeout)
        if message is None:
            return False
        if message.message_type is MessageType.SIGNAL:
            self.signals.append(message)
        elif message.message_type is not MessageType.METHOD_CALL:
            self.replies[message.reply_serial] = message
        return True

    def reply(self, serial, timeout=20):
        deadline = time.monotonic() + timeout
        while serial not in self.replies:
            if not self.take(deadline - time.monotonic()):
                raise TimeoutError(f"no answer in {timeout} s")
        message = self.replies.pop(serial)
        if message.message_type is MessageType.ERROR:
            raise BusError(message.error_name, message.body[0] if message.body else "")
        return message.body

    def call(self, member, *words, timeout=20, **where):
        return self.reply(self.send(member, *words, **where), timeout)

    def get(self, name, interface=MANAGER):
        return self.call("Get", "ss", interface, name, interface=PROPERTIES)[0].value

    def get_all(self):
        found = self.call("GetAll", "s", MANAGER, interface=PROPERTIES)[0]
        return {name: variant.value for name, variant in found.items()}

    def bus(self, member, *words):
        return self.call(member, *words, interface=DBUS, destination=DBUS, path="/org/freedesktop/DBus")

    def watch(self):
        """From now on signals of p2pd, and who owns its name, are kept in `signals`."""
        self.bus("AddMatch", "s", f"type='signal',sender='{NAME}'")
        self.bus("AddMatch", "s", f"type='signal',member='NameOwnerChanged',arg0='{NAME}'")

    def watch_until(self, found, timeout=30):
        """Reads signals until `found()`; False where that takes longer."""
        deadline = time.monotonic() + timeout
        while not found():
            if not self.take(deadline - time.monotonic()) and time.monotonic() >= deadline:
                return False
        return True

    def told(self, member):
        """Bodies of the signals of that name, in order."""
        return [message.body for message in self.signals if message.member == member and message.path == PATH]


def until(condition, what, timeout=20):
    """Its first true value; TimeoutError, which says `what` did not happen."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {timeout} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Bus:
    """The bus and what is on it. `peers`: which stand-ins there are; `build` has the programs in bin/.

    As systemd would, a test starts what it has killed; p2pd-walk listens by itself.
    """

    def __init__(self, place, build, peers=("polkit", "login1")):
        self.place, self.bin, self.peers = pathlib.Path(place), pathlib.Path(build) / "bin", peers
        self.tree, self.state, self.runtime = self.place / "tree", self.place / "state", self.place / "runtime"
        self.policy_file, self.notes_file = self.place / "polkit.json", self.place / "notes.jsonl"
        self.address = f"unix:path={self.place}/bus"
        self.processes = {}
        self.environment = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
                            "DBUS_SYSTEM_BUS_ADDRESS": self.address, "P2PD_RUNTIME": str(self.runtime),
                            "P2PD_STATE": str(self.state), "P2PD_IDLE_S": "600"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        self.place.chmod(0o755)
        make_machine(self.place)
        self.policy()
        self.runtime.mkdir(mode=0o755)
        write(self.place / "bus.conf", CONFIG.format(socket=f"{self.place}/bus", policy=SOURCE / "units/org.p2pd1.conf"))
        (self.place / "log").mkdir()

    # -- processes

    def inside(self, *argv, user=0, environment=()):
        """`argv` as it runs on that machine."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        variables = [f"{name}={value}" for name, value in {**self.environment, **dict(environment)}.items()]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, str(self.place),
                *become, "env", "-i", *variables, *map(str, argv)]

    def spawn(self, name, argv):
        if name in self.processes and self.processes[name].poll() is None:
            raise RuntimeError(f"{name} runs already")
        with open(self.log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        return self.processes[name]

    def log(self, name):
        return self.place / "log" / name

    def said(self, name):
        return self.log(name).read_text(errors="replace") if self.log(name).exists() else ""

    def tail(self):
        """The last words of each process, for a test that failed."""
        return "".join(f"--- {name}, {process.poll()}\n{self.said(name)[-3000:]}\n" for name, process in self.processes.items())

    def running(self, name):
        return name in self.processes and self.processes[name].poll() is None

    def end(self, name, number=signal.SIGTERM, timeout=20):
        """Sends the signal and waits; the exit status."""
        process = self.processes[name]
        process.send_signal(number)
        return process.wait(timeout)

    def start_bus(self):
        (self.place / "bus").unlink(missing_ok=True)
        self.spawn("bus", self.inside("dbus-daemon", f"--config-file={self.place}/bus.conf", "--nofork", "--nopidfile"))
        self.await_process("bus", (self.place / "bus").exists)
        if self.peers:
            count = self.said("peers").count("ready")
            self.spawn("peers", [sys.executable, SOURCE / "tests/sim/bus_peers.py", self.address, self.policy_file,
                                 self.notes_file, *self.peers])
            self.await_process("peers", lambda: self.said("peers").count("ready") > count)

    def start_walk(self, **environment):
        self.spawn("walk", self.inside(self.bin / "p2pd-walk", environment=environment))
        self.await_process("walk", self.walk_listens)

    def start_p2pd(self, **environment):
        self.spawn("p2pd", self.inside(self.bin / "p2pd", user=P2PD, environment=environment))
        with self.client() as client:
            self.await_process("p2pd", lambda: client.bus("NameHasOwner", "s", NAME)[0])

    def start(self):
        self.start_bus()
        self.start_walk()
        self.start_p2pd()

    def await_process(self, name, condition):
        def looked():
            if not self.running(name):
                raise RuntimeError(f"{name} ended with {self.processes[name].poll()}:\n{self.said(name)[-3000:]}")
            return condition()
        until(looked, lambda: f"{name} is up\n{self.said(name)[-3000:]}")

    def walk_listens(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            try:
                probe.connect(str(self.runtime / "walk.sock"))
                return True
            except OSError:
                return False

    def close(self):
        self.hold(False)
        for name in ("p2pd", "walk", "peers", "bus"):
            if self.running(name):
                self.processes[name].kill()
        for process in self.processes.values():
            process.wait(20)

    # -- what a test does with it

    def client(self, uid=0):
        return Client(self.address, uid)

    def ctl(self, *words, user=0, timeout=60, environment=()):
        return subprocess.run(self.inside(self.bin / "p2pctl", *words, user=user, environment=environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)

    def start_ctl(self, *words, user=0):
        return subprocess.Popen(self.inside(self.bin / "p2pctl", *words, user=user), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def policy(self, **rules):
        """What polkit says from now on; see bus_peers.py."""
        beside = self.policy_file.with_suffix(".new")
        beside.write_text(json.dumps(rules))
        beside.rename(self.policy_file)

    def notes(self, call=None):
        """What the stand-ins were asked, in order."""
        text = self.notes_file.read_text() if self.notes_file.exists() else ""
        return [note for note in map(json.loads, text.splitlines()) if call in (None, note["call"])]

    def status(self):
        """What p2pd-walk publishes; {} where there is nothing yet."""
        try:
            return json.loads((self.runtime / "status.json").read_text())
        except FileNotFoundError:
            return {}

    def hold(self, on=True):
        """The benchmark of every plan waits, or goes on."""
        if on:
            write(self.tree / "etc/hold", "")
        else:
            (self.tree / "etc/hold").unlink(missing_ok=True)

    def held(self):
        """The benchmark waits now."""
        return (self.tree / "run/held").exists()

    def settle(self, *states, timeout=30):
        """The status once the run is in one of these states."""
        return until(lambda: self.status().get("state") in states and self.status(),
                     lambda: f"{states}; it is {self.status()}\n{self.tail()}", timeout)

    def restart_machine(self):
        """As a reboot does: daemons ended, a new boot id, /run empty, the arguments of the entry that GRUB picks."""
        for name in ("p2pd", "walk"):
            if self.running(name):
                self.end(name)
        arguments = next(line for line in (self.tree / "boot/grub/grub.cfg").read_text().splitlines()
                         if line.startswith("  linux ")).split(" ro ")[1].strip()
        environment = self.tree / "boot/grub/grubenv"
        if "next_entry=p2pd-trial\n" in environment.read_text():
            arguments += f" {noted(self.tree / 'boot/grub/custom.cfg')} p2pd.trial=1 panic=30"
            subprocess.run(["grub-editenv", environment, "set", "next_entry="], check=True)
        boot(self.tree, arguments)
        for left in [*self.runtime.iterdir(), *(self.tree / "run").glob("motd.d/*"), *(self.tree / "run").glob("reboot-required*")]:
            left.unlink()


def interface_of(text):
    """The interfaces of introspection XML that are p2pd's own, normalised: what order, spaces and comments do not change."""
    def one(element):
        marks = tuple(sorted((mark.get("name"), mark.get("value")) for mark in element.findall("annotation")))
        arguments = tuple((arg.get("name"), arg.get("type"), arg.get("direction") or
                           ("out" if element.tag == "signal" else "in")) for arg in element.findall("arg"))
        return element.tag, element.get("name"), element.get("type"), element.get("access"), arguments, marks
    return {interface.get("name"): sorted((one(element) for element in interface if element.tag != "annotation"), key=repr)
            for interface in xml.fromstring(text).findall("interface")
            if not interface.get("name").startswith("org.freedesktop.")}


__all__ = ["Bus", "BusError", "Client", "DBUS", "GUEST", "MANAGER", "MessageFlag", "NAME", "NOBODY", "P2PD", "PATH", "PLANS", "PROPERTIES",
           "SOURCE", "Variant", "interface_of", "until"]
