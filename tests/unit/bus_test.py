#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pd, p2pd-walk and p2pctl on a bus of their own, with stand-ins for polkit and logind. P2PD_BUILD: the build directory."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import differences, picture, scratch_directory, write  # noqa: E402

BUILD = pathlib.Path(os.environ["P2PD_BUILD"]).resolve()
LACKING = next((why for why, lacks in (
    ("root, for a mount namespace", os.geteuid() != 0),
    ("dbus-daemon", not shutil.which("dbus-daemon")),
    ("setpriv and unshare (util-linux)", not (shutil.which("setpriv") and shutil.which("unshare"))),
    ("grub-editenv (grub-common)", not shutil.which("grub-editenv"))) if lacks), None)
if not LACKING:
    try:
        from bus import (Bus, BusError, GUEST, interface_of, MANAGER, MessageFlag, NAME, NOBODY, PATH, PROPERTIES, SOURCE,
                         until, Variant)
    except ImportError as error:
        LACKING = f"python3-dbus-next ({error})"

ACCESS_DENIED, INVALID_ARGS = "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InvalidArgs"
INTERACTIVE = "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"
WRITES = {"Apply": ("sa{sv}", "work", {}), "Pause": (), "Resume": (), "Retry": (), "Cancel": (), "Revert": ()}
POLKIT_ACTION = {"Apply": "reboot", "Resume": "reboot", "Retry": "reboot", "Pause": "apply", "Cancel": "revert", "Revert": "revert"}
KEPT_TO_ITSELF = ("Version", "Gpus")  # properties whose changes are not told


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
        """A file of the machine, there before anything runs."""
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
        """A run that is at its benchmark, which waits."""
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
        """The call is refused with that error, or one of these; its words."""
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


class Interface(Case):
    def test_introspection_is_the_shipped_xml(self):
        shipped = interface_of((SOURCE / "units/org.p2pd1.xml").read_text())
        live = interface_of(self.nobody.call("Introspect", interface="org.freedesktop.DBus.Introspectable")[0])
        self.assertEqual(live, shipped)
        for row in shipped[MANAGER]:
            if row[0] == "property":
                value = self.nobody.call("Get", "ss", MANAGER, row[1], interface=PROPERTIES)[0]
                self.assertEqual(value.signature, row[2], row[1])
        shown = subprocess.run(["busctl", f"--address={self.bus.address}", "introspect", NAME, PATH], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"\.Apply +method +sa\{sv\} +t ")

    def test_before_anything_has_run(self):
        found = self.nobody.get_all()
        self.assertEqual((found["State"], found["RunId"], found["Step"], found["RebootRequired"]), ("idle", 0, "", False))
        self.assertEqual(self.nobody.call("ListSteps")[0], [])
        self.assertEqual(json.loads(self.nobody.call("GetReport")[0])["schema"], "p2pd.status/1")
        history = json.loads(self.nobody.call("GetHistory", "u", 5)[0])
        self.assertEqual((history["schema"], history["runs"]), ("p2pd.history/1", []))
        self.assert_unchanged()

    def test_a_run_is_told(self):
        self.nobody.watch()
        at_first = self.nobody.get_all()
        run = self.apply_held()
        self.assertTrue(self.nobody.watch_until(lambda: any(told[0] == "options" for told in self.nobody.told("StepChanged"))))
        now = self.nobody.get_all()
        self.assertEqual((now["State"], now["PlanName"], now["RunId"], now["Step"]), ("walking", "work", run, "proof"))
        self.assertEqual(now["Progress"][2:], [1, 2], "state steps that hold, and all")
        self.finish()
        self.assertTrue(self.nobody.watch_until(lambda: self.nobody.told("RunFinished")))
        self.nobody.watch_until(lambda: False, timeout=0.5)
        (finished,) = self.nobody.told("RunFinished")
        self.assertEqual(finished[:2], [run, "ready"])
        at_last = self.nobody.get_all()
        self.assertEqual((at_last["State"], at_last["Step"], at_last["Progress"][0]), ("ready", "", 100))
        for interface, changed, invalidated in self.properties_told():
            self.assertEqual((interface, invalidated), (MANAGER, []))
            self.assertFalse(set(changed) & set(KEPT_TO_ITSELF))
            at_first.update({name: variant.value for name, variant in changed.items()})
        self.assertEqual(at_first, at_last, "what was told, put together, is what is")
        steps = self.nobody.call("ListSteps")[0]
        self.assertEqual([(step[0], step[3]) for step in steps], [("options", "pass"), ("proof", "pass")])
        last_told = {told[0]: told for told in self.nobody.told("StepChanged")}
        self.assertEqual(last_told, {step[0]: [step[0], *step[2:]] for step in steps})
        report = json.loads(self.nobody.call("GetReport")[0])
        self.assertEqual(report, self.bus.status())
        self.assertEqual((report["state"], report["reason"], report["next"]), (at_last["State"], at_last["Reason"], at_last["Next"]))

    def properties_told(self):
        return [message.body for message in self.nobody.signals if message.interface == PROPERTIES and message.path == PATH]

    def test_busctl_monitor_shows_a_run(self):
        log = self.bus.place / "monitor"
        with open(log, "wb") as out:
            monitor = subprocess.Popen(["busctl", f"--address={self.bus.address}", "monitor", NAME], stdout=out, stderr=out)
        self.addCleanup(monitor.wait)
        self.addCleanup(monitor.kill)
        until(lambda: b"Monitoring bus" in log.read_bytes(), "the monitor is up")
        self.apply()
        self.bus.settle("ready")
        until(lambda: b"Member=RunFinished" in log.read_bytes(), "the monitor shows the end")
        for word in (b"Member=StepChanged", b"Member=PropertiesChanged", b'STRING "proof"', b'STRING "walking"'):
            self.assertIn(word, log.read_bytes())

    def test_nobody_writes(self):
        self.apply()
        self.bus.settle("ready")
        before = picture(self.bus.tree), picture(self.bus.state), picture(self.bus.runtime)
        for method, words in WRITES.items():
            self.assert_error(ACCESS_DENIED, method, *words, client=self.nobody)
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        done = subprocess.run(self.bus.inside("python3", "-c", connect, self.bus.runtime / "walk.sock", user=NOBODY),
                              capture_output=True, text=True)
        self.assertIn("PermissionError", done.stderr, "the worker's own socket")
        self.assertEqual((picture(self.bus.tree), picture(self.bus.state), picture(self.bus.runtime)), before)

    def test_log_control(self):
        where = {"interface": PROPERTIES, "path": "/org/freedesktop/LogControl1"}
        level = "org.freedesktop.LogControl1", "LogLevel"
        self.root.call("Set", "ssv", *level, Variant("s", "debug"), **where)
        self.assertEqual(self.nobody.call("Get", "ss", *level, **where)[0].value, "debug")
        self.assert_error(ACCESS_DENIED, "Set", "ssv", *level, Variant("s", "info"), client=self.nobody, **where)
        self.assert_error(INVALID_ARGS, "Set", "ssv", *level, Variant("s", "frobnicate"), **where)
        self.assertEqual(self.root.call("Get", "ss", *level, **where)[0].value, "debug")


class Verbs(Case):
    """Every verb of p2pctl that is told something over the bus."""

    def json(self, code, *words, **more):
        done = self.bus.ctl(*words, "--json", **more)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        self.assertRegex(found["schema"], r"^p2pd\.[a-z-]+/1$")
        return found

    def test_apply_history_and_revert(self):
        self.assert_ctl(3, "is-ready")
        self.assertEqual(self.json(0, "status")["state"], "idle")
        self.assertIn("ready", self.assert_ctl(0, "apply", "work"))
        self.assertEqual(self.bus.status()["result"], "ready")
        self.assert_ctl(0, "is-ready", user=NOBODY)
        self.assertRegex(self.assert_ctl(0, "metrics", user=NOBODY), r"(?m)^p2pd_ready 1$")
        self.assertTrue((self.bus.runtime / "ready").exists())
        for user in (0, NOBODY):
            self.assertEqual(self.json(0, "status", user=user)["state"], "ready")
            self.assertEqual(len(self.json(0, "history", user=user)["runs"]), 1)
        self.assertEqual(self.json(0, "apply", "work")["state"], "ready")
        self.assertIn("undone", self.assert_ctl(0, "revert"))
        self.assert_ctl(3, "is-ready")
        self.assertFalse((self.bus.runtime / "ready").exists())
        self.assert_unchanged()

    def test_apply_no_block_status_pause_resume(self):
        self.bus.hold()
        begun = time.monotonic()
        self.assertEqual(self.json(0, "apply", "work", "--no-block")["state"], "walking")
        self.assertLess(time.monotonic() - begun, 10)
        until(self.bus.held, "at the benchmark")
        self.assertRegex(self.assert_ctl(0, "status", user=NOBODY), r"walking(.|\n)*proof")
        self.assert_ctl(3, "is-ready")
        self.assert_ctl(0, "pause")
        self.finish("paused")
        self.assertEqual(self.json(0, "status")["state"], "paused")
        self.assertIn("ready", self.assert_ctl(0, "resume"))
        self.bus.settle("ready")

    def test_status_wait_and_watch(self):
        self.apply_held()
        waiting, watching = self.bus.start_ctl("status", "--wait"), self.bus.start_ctl("status", "--watch", user=NOBODY)
        for process in (waiting, watching):
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        time.sleep(1)
        self.assertEqual((waiting.poll(), watching.poll()), (None, None))
        self.finish()
        self.assertIn("ready", waiting.communicate(timeout=20)[0])
        self.assertEqual(waiting.returncode, 0)
        time.sleep(0.5)
        watching.send_signal(signal.SIGINT)
        out, said = watching.communicate(timeout=20)
        self.assertRegex(out, r"proof(.|\n)*ready", said)

    def test_blocked_retry_cancel(self):
        self.assertIn("stuck", self.assert_ctl(4, "apply", "stuck"))
        run = self.bus.status()["run"]
        self.assert_ctl(4, "retry")
        self.assertEqual(self.json(4, "retry")["state"], "blocked")
        self.assertEqual(self.bus.status()["run"], run)
        self.assert_ctl(0, "cancel")
        self.assertEqual(self.bus.status()["result"], "reverted")
        self.assert_unchanged()

    def test_refusals_are_one_line(self):
        for words, pattern in ((["apply", "nowhere"], "nowhere"), (["pause"], "."), (["resume"], "."), (["retry"], "."), (["cancel"], ".")):
            with self.subTest(words=words):
                done = self.bus.ctl(*words)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stderr, rf"\Ap2pctl: .*{pattern}.*\n(  next: .*\n)?\Z")
        done = self.bus.ctl("apply", "work", user=NOBODY)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Ap2pctl: .*\n(  next: .*\n)?\Z")
        self.assert_unchanged()

    def test_ctl_ends_and_the_run_goes_on(self):
        self.bus.hold()
        following = self.bus.start_ctl("apply", "work")
        self.addCleanup(following.communicate)
        until(self.bus.held, "at the benchmark")
        following.kill()
        self.assertEqual(self.bus.status()["state"], "walking")
        self.finish()


class Polkit(Case):
    def checks(self):
        return self.bus.notes("CheckAuthorization")

    def test_each_method_asks_for_its_action(self):
        for method, words in WRITES.items():
            self.assert_error(ACCESS_DENIED, method, *words, client=self.nobody)
            asked = self.checks()[-1]
            self.assertEqual((asked["action"], asked["uid"], asked["interactive"], asked["subject"]),
                             ("org.p2pd1." + POLKIT_ACTION[method], NOBODY, False, "system-bus-name"), method)
        with self.assertRaises(BusError):
            self.apply(client=self.nobody, reboot=False)
        self.assertEqual(self.checks()[-1]["action"], "org.p2pd1.apply")
        self.assertEqual(self.bus.status().get("run", 0), 0)
        self.assert_unchanged()

    def test_allowed(self):
        self.bus.policy(allow={"org.p2pd1.apply": [NOBODY]})
        self.assert_error(ACCESS_DENIED, "Apply", "sa{sv}", "work", {}, client=self.nobody)
        run = self.apply(client=self.nobody, reboot=False)
        self.assertEqual(self.bus.settle("ready")["run"], run)
        self.assert_error(ACCESS_DENIED, "Revert", client=self.nobody)
        self.bus.policy(allow={"org.p2pd1.revert": [NOBODY]})
        self.nobody.call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.assert_unchanged()

    def test_a_password_is_asked_for(self):
        self.bus.policy(challenge={"org.p2pd1.reboot": [NOBODY]})
        words = "Apply", "sa{sv}", "work", {}
        self.assert_error(INTERACTIVE, *words, client=self.nobody)
        self.assertFalse(self.checks()[-1]["interactive"])
        self.assert_error((ACCESS_DENIED, INTERACTIVE), *words, client=self.nobody, flags=MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION)
        self.assertTrue(self.checks()[-1]["interactive"])
        self.bus.policy(challenge={"org.p2pd1.reboot": [NOBODY]}, agent=True)
        self.assert_error(INTERACTIVE, *words, client=self.nobody)
        self.assertEqual(self.bus.status().get("run", 0), 0)
        run = self.nobody.call(*words, flags=MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION)[0]
        self.assertEqual(self.bus.settle("ready")["run"], run)

    def test_polkit_in_error_is_a_refusal(self):
        for name in ("org.freedesktop.PolicyKit1.Error.Failed", "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.AccessDenied"):
            self.bus.policy(error=name, allow={"org.p2pd1.reboot": [NOBODY]})
            with self.assertRaises(BusError):
                self.apply(client=self.nobody)
        self.assertEqual(self.bus.status().get("run", 0), 0)

    def test_polkit_goes_away(self):
        self.bus.policy(delay_s=60, allow={"org.p2pd1.reboot": [NOBODY]})
        serial = self.nobody.send("Apply", "sa{sv}", "work", {})
        until(self.checks, "polkit is asked")
        self.bus.end("peers", signal.SIGKILL)
        with self.assertRaises(BusError):
            self.nobody.reply(serial)
        with self.assertRaises(BusError):
            self.apply(client=self.nobody)
        self.assertEqual(self.bus.status().get("run", 0), 0)
        self.apply()  # root is root
        self.bus.settle("ready")

    def test_a_late_answer_keeps_nobody_else_waiting(self):
        self.bus.policy(delay_s=2, allow={"org.p2pd1.reboot": [NOBODY]})
        serial = self.nobody.send("Apply", "sa{sv}", "work", {})
        until(self.checks, "polkit is asked")
        begun = time.monotonic()
        for _ in range(20):
            self.root.get("State")
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual(self.bus.settle("ready")["run"], self.nobody.reply(serial)[0])

    def test_polkit_never_answers(self):
        self.bus.policy(never=[NOBODY])
        for _ in range(200):
            self.nobody.send("Revert")
        until(self.checks, "polkit is asked")
        limited = until(lambda: self.nobody.take(1) and self.nobody.replies, "some are refused at once")
        self.assertEqual({reply.error_name for reply in limited.values()}, {"org.freedesktop.DBus.Error.LimitsExceeded"})
        asked = len(self.checks())
        self.assertLess(asked, 100)
        self.assertEqual(self.client(NOBODY).get("State"), "idle")
        self.assertEqual(self.root.get("State"), "idle")
        self.nobody.close()  # what it asked for goes with it, so that others of that user can ask
        self.bus.policy(allow={"org.p2pd1.reboot": [NOBODY]})
        until(self.allowed_again, "asked again", timeout=10)
        self.bus.settle("ready")

    def test_one_user_does_not_keep_out_others(self):
        """However many connections it opens, and questions it leaves open on each."""
        self.bus.policy(never=[NOBODY], allow={"org.p2pd1.reboot": [GUEST]})
        for _ in range(30):
            client = self.client(NOBODY)
            for _ in range(20):
                client.send("Revert")
        until(lambda: len(self.checks()) >= 8, "polkit is asked")
        self.nobody.get("State")  # by then all of them are dealt with
        self.apply(client=self.client(GUEST))
        self.bus.settle("ready")

    def allowed_again(self):
        try:
            return self.apply(client=self.client(NOBODY))
        except BusError as error:
            self.assertEqual(error.name, "org.freedesktop.DBus.Error.LimitsExceeded")
            return None


class NoPolkit(Case):
    peers = ("login1",)

    def test_root_only(self):
        for method, words in WRITES.items():
            self.assert_error(ACCESS_DENIED, method, *words, client=self.nobody)
        self.assertRegex(self.bus.said("p2pd"), "(?i)polkit")
        self.assertEqual(self.nobody.get("State"), "idle")
        self.apply()
        self.bus.settle("ready")


class BadInput(Case):
    def test_wrong_types(self):
        rows = [("Apply",), ("Apply", "s", "work"), ("Apply", "ss", "work", ""), ("Apply", "sa{ss}", "work", {}), ("Apply", "u", 1),
                ("Pause", "s", ""), ("Revert", "b", True), ("GetHistory",), ("GetHistory", "s", "5"), ("GetHistory", "t", 5), ("GetHistory", "uu", 5, 5)]
        for words in rows:
            with self.subTest(call=words):
                self.assert_error(INVALID_ARGS, *words)
        unknown = tuple(f"org.freedesktop.DBus.Error.Unknown{what}" for what in ("Method", "Interface", "Object"))
        self.assert_error(unknown, "Frobnicate")
        self.assert_error(unknown, "Apply", "sa{sv}", "work", {}, interface="org.p2pd1.Other")
        self.assert_error(unknown, "Apply", "sa{sv}", "work", {}, path="/org/p2pd2")
        self.assert_error("org.freedesktop.DBus.Error.UnknownProperty", "Get", "ss", MANAGER, "Frobnicate", interface=PROPERTIES)
        for name, value in (("State", Variant("s", "ready")), ("RebootRequired", Variant("b", True))):
            self.assert_error(("org.freedesktop.DBus.Error.PropertyReadOnly", ACCESS_DENIED), "Set", "ssv", MANAGER, name, value, interface=PROPERTIES)
        self.assert_nothing_ran()

    def assert_nothing_ran(self):
        self.assertEqual((self.root.get("State"), self.root.get("RunId")), ("idle", 0))
        self.assert_unchanged()

    def test_options(self):
        invalid = ("org.p2pd1.Error.Invalid", INVALID_ARGS)
        rows = [{"frobnicate": Variant("b", True)}, {"reboot": Variant("s", "no")}, {"reboot": Variant("v", Variant("b", False))},
                {"": Variant("b", True)}, {"reboot": Variant("b", False), "other": Variant("a{sv}", {})}, {"Reboot": Variant("b", False)}]
        for options in rows:
            with self.subTest(options=options):
                self.assert_error(invalid, "Apply", "sa{sv}", "work", options)
        self.assert_nothing_ran()

    def test_plan_names(self):
        self.write("etc/p2pd/outside.yaml", (self.bus.tree / "etc/p2pd/plans/work.yaml").read_text())
        for name in ("/etc/p2pd/plans/work.yaml", "../outside", "..", ".", "plans/work", "./work", "work.yaml/", "work\n", " work", "WORK",
                     "\x1b[2J", "a" * 1_000_000, 'work"}\n{"do":"revert"}', "work\\u0000", "ä"):
            with self.subTest(plan=name[:40]):
                said = self.assert_error(("org.p2pd1.Error.Invalid", "org.p2pd1.Error.NotFound", INVALID_ARGS), "Apply", "sa{sv}", name, {})
                self.assertLess(len(said), 1000)
                self.assertNotIn("\x1b", said)
        self.assert_error("org.p2pd1.Error.NotFound", "Apply", "sa{sv}", "nowhere", {})
        self.assert_nothing_ran()

    def test_a_second_apply(self):
        run = self.apply_held()
        self.assertEqual(self.apply(), run)
        self.assertEqual(self.apply(""), run, "the configured plan is the one that runs")
        self.assert_error("org.p2pd1.Error.State", "Apply", "sa{sv}", "prove", {})
        self.finish()
        self.assert_one_run(run)

    def test_wrong_moments(self):
        for method in ("Pause", "Resume", "Retry", "Cancel"):
            with self.subTest(method=method):
                self.assert_error("org.p2pd1.Error.State", method)
        self.assert_nothing_ran()

    def test_a_plan_that_is_none(self):
        self.write("etc/p2pd/plans/broken.yaml", "name: broken\nsteps: [{state: a\n")
        self.assertIn("broken.yaml:", self.assert_error("org.p2pd1.Error.Invalid", "Apply", "sa{sv}", "broken", {}))
        self.assert_nothing_ran()

    def test_ten_thousand_calls(self):
        self.root.get("State")
        before = self.resident_mib("p2pd")
        serials = [self.nobody.send(*("GetReport",) if number % 2 else ("GetAll", "s", MANAGER),
                                    **{} if number % 2 else {"interface": PROPERTIES}) for number in range(10_000)]
        begun = time.monotonic()
        self.assertEqual(self.root.get("State"), "idle")
        self.assertLess(time.monotonic() - begun, 10)
        for serial in serials:
            self.nobody.reply(serial, timeout=60)
        self.assertLess(self.resident_mib("p2pd") - before, 32)
        self.assertTrue(self.bus.running("p2pd"))

    def test_ten_thousand_refused_writes(self):
        before = self.resident_mib("p2pd")
        serials = [self.nobody.send("Revert") for _ in range(10_000)]
        begun = time.monotonic()
        self.assertEqual(self.root.get("State"), "idle")
        self.assertLess(time.monotonic() - begun, 10)
        refusals = set()
        for serial in serials:
            with self.assertRaises(BusError) as caught:
                self.nobody.reply(serial, timeout=60)
            refusals.add(caught.exception.name)
        self.assertLessEqual(refusals, {ACCESS_DENIED, "org.freedesktop.DBus.Error.LimitsExceeded"})
        self.assertLess(self.resident_mib("p2pd") - before, 32)
        self.assert_nothing_ran()

    def test_a_client_that_never_reads(self):
        before = self.resident_mib("p2pd")
        deaf = self.client(NOBODY)
        deaf.watch()
        deaf.socket.settimeout(2)
        try:
            for _ in range(50_000):
                deaf.send("GetReport")
        except (TimeoutError, ConnectionError):
            pass  # the bus takes no more of it
        run = self.apply()
        self.assertEqual(self.bus.settle("ready")["run"], run)
        until(lambda: self.root.get("State") == "ready", "told to others")
        self.assertLess(self.resident_mib("p2pd") - before, 64)


class Survives(Case):
    def test_the_bus_restarts(self):
        run = self.apply_held()
        self.bus.end("bus", signal.SIGKILL)
        self.bus.processes["peers"].wait(20)
        self.bus.start_bus()
        try:  # it comes back by itself, or ends and systemd starts it
            self.bus.processes["p2pd"].wait(5)
            self.bus.start_p2pd()
        except subprocess.TimeoutExpired:
            until(lambda: self.client().bus("NameHasOwner", "s", NAME)[0], "it is back on the bus")
        again = self.client()
        self.assertEqual((again.get("State"), again.get("RunId")), ("walking", run))
        self.finish()
        until(lambda: again.get("State") == "ready", "told on the new bus")
        self.assert_one_run(run)

    def test_sigkill_of_p2pd(self):
        run = self.apply_held()
        self.bus.end("p2pd", signal.SIGKILL)
        self.bus.start_p2pd()
        self.root.watch()
        self.assertEqual((self.root.get("State"), self.root.get("RunId")), ("walking", run))
        self.finish()
        self.assertTrue(self.root.watch_until(lambda: self.root.told("RunFinished")))
        self.assertEqual(self.root.told("RunFinished")[0][:2], [run, "ready"])
        self.assert_one_run(run)

    def test_sigkill_of_the_worker(self):
        run = self.apply_held()
        self.nobody.watch()
        self.bus.end("walk", signal.SIGKILL)
        self.assertEqual(self.nobody.get("RunId"), run)
        self.assertRegex(self.assert_error(tuple(f"org.p2pd1.Error.{name}" for name in ("Unavailable", "Io", "Busy")), "Pause"), ".")
        self.bus.hold(False)
        self.bus.start_walk()
        self.bus.settle("ready")
        self.assertTrue(self.nobody.watch_until(lambda: self.nobody.told("RunFinished")))
        self.assert_one_run(run)
        self.root.call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.assert_unchanged()

    def test_sigkill_of_both(self):
        run = self.apply_held()
        for name in ("walk", "p2pd"):
            self.bus.processes[name].kill()
        for name in ("walk", "p2pd"):
            self.bus.processes[name].wait(20)
        self.bus.hold(False)
        self.bus.start_p2pd()
        self.assertEqual(self.root.get("RunId"), run)
        self.bus.start_walk()
        self.bus.settle("ready")
        until(lambda: self.root.get("State") == "ready", "told")
        self.assert_one_run(run)

    def test_sigterm_at_any_moment(self):
        seed = int(os.environ.get("P2PD_SEED", "6"))
        moments = random.Random(seed)
        self.root.close()
        self.nobody.close()
        for turn in range(8):
            with self.subTest(seed=seed, turn=turn):
                with self.bus.client() as client:
                    run = self.apply(client=client)
                for name in moments.sample(("walk", "p2pd"), 2):
                    time.sleep(moments.random() * 0.15)
                    self.assertEqual(self.bus.end(name), 0, self.bus.said(name)[-2000:])
                self.assertNotEqual(self.bus.status(), {}, "what is known stays known")
                self.bus.start_walk()
                self.bus.start_p2pd()
                with self.bus.client() as client:
                    if self.bus.settle("ready", "idle")["run"] != run:
                        self.fail(f"run {run} is not the newest: {self.bus.status()}")
                    self.assertEqual(client.get("State"), "ready")
                    client.call("Revert")
                    until(lambda: self.bus.status()["result"] == "reverted", "undone")
                self.assert_unchanged()

    def test_idle(self):
        """Whoever has nothing to do ends, and only then."""
        for name in ("p2pd", "walk"):
            self.assertEqual(self.bus.end(name), 0)
        self.bus.start_walk(P2PD_IDLE_S="1")
        self.bus.start_p2pd(P2PD_IDLE_S="1")
        self.apply_held()
        time.sleep(2.5)
        self.assertTrue(self.bus.running("p2pd") and self.bus.running("walk"), "a run is being walked")
        self.finish()
        for name in ("walk", "p2pd"):
            self.assertEqual(self.bus.processes[name].wait(15), 0, name)
        self.assertEqual(self.bus.status()["state"], "ready")
        self.assertTrue((self.bus.runtime / "ready").exists())
        self.assertFalse(self.root.bus("NameHasOwner", "s", NAME)[0])


class Reboots(Case):
    def wait_for_reboot(self):
        self.bus.settle("rebooting")
        return until(lambda: self.bus.notes("ScheduleShutdown"), "logind is asked")[-1]

    def test_through_logind_and_on_by_itself(self):
        run = self.apply("arguments")
        asked = self.wait_for_reboot()
        self.assertEqual(asked["kind"], "reboot")
        self.assertTrue(40 < asked["in_s"] <= 61, asked)
        self.assertRegex(asked["wall"], r"(?s)p2pd.*p2pctl pause")
        self.assertRegex((self.bus.tree / "run/motd.d/p2pd").read_text(), "p2pctl pause")
        until(lambda: self.root.get("RebootRequired"), "told")
        self.assertEqual(self.root.get("Reboots")[0], 1)
        self.bus.restart_machine()
        self.bus.start_walk()
        self.bus.start_p2pd()
        self.assertEqual(self.bus.settle("ready")["run"], run)
        self.assertEqual(self.client().get("Reboots")[0], 1)
        self.assertEqual(len(self.bus.notes("ScheduleShutdown")), 1)

    def test_a_worker_that_waited_long(self):
        """A connection that says nothing is closed by the bus: 30 s on a real one, 2 here."""
        time.sleep(3)
        self.apply("arguments")
        self.wait_for_reboot()

    def test_shutdown_c_is_a_pause(self):
        run = self.apply("arguments")
        self.wait_for_reboot()
        login = {"destination": "org.freedesktop.login1", "path": "/org/freedesktop/login1", "interface": "org.freedesktop.login1.Manager"}
        self.assertEqual(self.root.call("CancelScheduledShutdown", **login), [True])
        self.bus.settle("paused")
        self.assertFalse((self.bus.tree / "run/motd.d/p2pd").exists())
        self.assertEqual(self.root.call("Resume")[0], run)
        self.bus.settle("rebooting")
        until(lambda: len(self.bus.notes("ScheduleShutdown")) == 2, "asked again")

    def test_pause_calls_it_off(self):
        self.apply("arguments")
        self.wait_for_reboot()
        self.root.call("Pause")
        self.bus.settle("paused")
        self.assertEqual(self.bus.notes("CancelScheduledShutdown")[-1]["kind"], "reboot")

    def test_somebody_else_reboots(self):
        self.apply("arguments", reboot=False)
        self.bus.settle("rebooting")
        time.sleep(0.5)
        self.assertEqual(self.bus.notes("ScheduleShutdown") + self.bus.notes("Reboot"), [])
        self.assertIn("p2pd", (self.bus.tree / "run/reboot-required.pkgs").read_text())
        self.assertTrue((self.bus.tree / "run/reboot-required").exists())
        self.bus.restart_machine()
        self.bus.start_walk()
        self.bus.settle("ready")


if __name__ == "__main__":
    unittest.main()
