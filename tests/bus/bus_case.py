# SPDX-License-Identifier: MIT
"""Base class of the bus tests: p2pd, p2pd-worker and p2pctl on a bus of their own, with stand-ins for polkit and logind.

P2PD_BUILD: the build directory.
"""
import json
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import differences, picture, scratch_directory, write  # noqa: E402

BUILD = pathlib.Path(os.environ["P2PD_BUILD"]).resolve()
LACKING = next((why for why, lacks in (
    ("root, for a mount namespace", os.geteuid() != 0),
    ("dbus-daemon", not shutil.which("dbus-daemon")),
    ("setpriv and unshare (util-linux)", not (shutil.which("setpriv") and shutil.which("unshare"))),
    ("grub-editenv (grub-common)", not shutil.which("grub-editenv"))) if lacks), None)
try:
    from bus import Bus, SOURCE
    from bus_client import BusError, interface_of, MANAGER, MessageFlag, NAME, PATH, PROPERTIES, until, Variant
    from bus_machine import GUEST, NOBODY
except ImportError as error:  # every case is skipped; their files use these names all the same
    LACKING = LACKING or f"python3-dbus-next ({error})"
    Bus = BusError = GUEST = interface_of = MANAGER = MessageFlag = NAME = NOBODY = PATH = PROPERTIES = SOURCE = until = Variant = None

ACCESS_DENIED, INVALID_ARGS = "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InvalidArgs"
INTERACTIVE = "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"
WRITES = {"Apply": ("sa{sv}", "work", {}), "Pause": (), "Resume": (), "Retry": (), "Cancel": (), "Revert": ()}
POLKIT_ACTION = {"Apply": "reboot", "Resume": "reboot", "Retry": "reboot", "Pause": "apply", "Cancel": "revert", "Revert": "revert"}
KEPT_TO_ITSELF = ("Version", "Gpus")  # properties whose changes are not signalled


@unittest.skipIf(LACKING, f"SKIP: needs {LACKING}")
class Case(unittest.TestCase):
    peers = ("polkit", "login1")
    last_words = ""

    def setUp(self):
        directory = scratch_directory("p2pd-bus-")
        self.addCleanup(directory.cleanup)
        self.bus = Bus(directory.name, BUILD, self.peers)
        self.addCleanup(self.bus.close)
        self.addCleanup(lambda: setattr(self, "last_words", self.bus.tail()))
        self.before = picture(self.bus.tree)
        self.start()
        self.root, self.nobody = self.client(), self.client(NOBODY)

    def run(self, result=None):
        bad = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > bad:
            print(self.last_words, file=sys.stderr)

    def start(self):
        self.bus.start()

    def write(self, name, content):
        """Writes a file of the machine before anything runs."""
        write(self.bus.tree / name, content)
        self.before = picture(self.bus.tree)

    def client(self, uid=0):
        client = self.bus.client(uid)
        self.addCleanup(client.close)
        return client

    def apply(self, plan="work", client=None, **options):
        options = {name: Variant("b", value) for name, value in options.items()}
        return (client or self.root).call("Apply", "sa{sv}", plan, options)[0]

    def apply_held(self, plan="work"):
        """Starts a run that is held at its benchmark."""
        self.bus.hold()
        run = self.apply(plan)
        until(self.bus.held, lambda: f"at the benchmark: {self.bus.status()}")
        return run

    def finish(self, *states):
        self.bus.hold(False)
        return self.bus.settle(*states or ["ready"])

    def resident_mib(self, name):
        words = pathlib.Path(f"/proc/{self.bus.processes[name].pid}/status").read_text().split()
        return int(words[words.index("VmRSS:") + 1]) / 1024

    def assert_error(self, name, *words, client=None, **where):
        """Checks that the call is refused with this error, or one of these; returns its text."""
        with self.assertRaises(BusError) as caught:
            (client or self.root).call(*words, **where)
        self.assertIn(caught.exception.name, (name,) if isinstance(name, str) else name, caught.exception.text)
        self.assertTrue(caught.exception.text)
        return caught.exception.text

    def assert_unchanged(self):
        self.assertEqual(differences(picture(self.bus.tree), self.before), "")

    def assert_one_run(self, run):
        self.assertEqual({one["id"] for one in json.loads(self.client().call("GetHistory", "u", 100)[0])["runs"]}, {run})

    def assert_ctl(self, code, *words, **more):
        done = self.bus.ctl(*words, **more)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr
