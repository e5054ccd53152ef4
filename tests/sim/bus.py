# SPDX-License-Identifier: MIT
"""A system bus of one's own with p2pd on it: p2pd, p2pd-worker, p2pctl and the services they call, on a machine that is a directory.

The machine that they read and change is `tree`: each process gets a mount namespace in which tree/etc, boot,
run, proc/cmdline and the boot id are those of "/", and programs of `tools` come before others of the same name. The
rest is this machine's own, so plans for it may name only steps that stay within these: see PLANS of bus_machine.py.
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

from bus_client import NAME, Client, until
from bus_machine import P2PD, make_machine, restart
from terminal import agreed
from tree import write

SOURCE = pathlib.Path(__file__).resolve().parents[2]

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

INSIDE = """set -e
for path in etc boot run proc/cmdline proc/sys/kernel/random/boot_id; do mount --bind "$0/tree/$path" "/$path"; done
mount --bind "$0/tools" /usr/local/sbin
mount --bind "$0/cache" /var/cache
exec "$@" """


class Bus:
    """The bus and what is on it. `peers`: which stand-ins there are; `build` has the programs in bin/.

    As systemd would, a test starts what it has killed; p2pd-worker listens by itself.
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
        for name in ("log", "cache"):
            (self.place / name).mkdir()

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
        self.spawn("walk", self.inside(self.bin / "p2pd-worker", environment=environment))
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
        return subprocess.run(self.inside(self.bin / "p2pctl", *agreed(words), user=user, environment=environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)

    def start_ctl(self, *words, user=0, stdout=subprocess.PIPE):
        return subprocess.Popen(self.inside(self.bin / "p2pctl", *agreed(words), user=user), stdin=subprocess.DEVNULL,
                                stdout=stdout, stderr=subprocess.PIPE, text=True)

    def policy(self, **rules):
        """Sets the answers of polkit; see bus_peers.py."""
        beside = self.policy_file.with_suffix(".new")
        beside.write_text(json.dumps(rules))
        beside.rename(self.policy_file)

    def notes(self, call=None):
        """Calls that the stand-ins received, in order."""
        text = self.notes_file.read_text() if self.notes_file.exists() else ""
        return [note for note in map(json.loads, text.splitlines()) if call in (None, note["call"])]

    def status(self):
        """Status published by p2pd-worker; {} if there is none."""
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
        """As a reboot does: the daemons have ended, and what they published is gone."""
        for name in ("p2pd", "walk"):
            if self.running(name):
                self.end(name)
        restart(self.tree)
        for left in self.runtime.iterdir():
            left.unlink()
