#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2pd on a bus of its own: its properties, the status of a run, access rights, and the verbs of p2pctl. See bus_case.py."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from bus_case import (Case, ACCESS_DENIED, INVALID_ARGS, WRITES, KEPT_TO_ITSELF, interface_of, MANAGER, NAME, NOBODY, PATH, PROPERTIES, SOURCE, until, Variant, picture)
from terminal import open_terminal


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
        self.assertEqual(found["FitFor"], [])
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
        self.assertEqual(at_last["FitFor"], ["copies", "nccl", "custom-all-reduce"])
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

        def pictures():
            return picture(self.bus.tree), picture(self.bus.state), picture(self.bus.runtime)

        def settled():  # the journal is written after the run has ended, too
            now = pictures()
            time.sleep(0.5)
            return now == pictures() and now

        before = until(settled, "nothing is written any more")
        for method, words in WRITES.items():
            self.assert_error(ACCESS_DENIED, method, *words, client=self.nobody)
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        done = subprocess.run(self.bus.inside("python3", "-c", connect, self.bus.runtime / "walk.sock", user=NOBODY),
                              capture_output=True, text=True)
        self.assertIn("PermissionError", done.stderr, "the worker's own socket")
        self.assertEqual(pictures(), before)

    def test_log_control(self):
        where = {"interface": PROPERTIES, "path": "/org/freedesktop/LogControl1"}
        level = "org.freedesktop.LogControl1", "LogLevel"
        self.root.call("Set", "ssv", *level, Variant("s", "debug"), **where)
        self.assertEqual(self.nobody.call("Get", "ss", *level, **where)[0].value, "debug")
        self.assert_error(ACCESS_DENIED, "Set", "ssv", *level, Variant("s", "info"), client=self.nobody, **where)
        self.assert_error(INVALID_ARGS, "Set", "ssv", *level, Variant("s", "frobnicate"), **where)
        self.assertEqual(self.root.call("Get", "ss", *level, **where)[0].value, "debug")


class Verbs(Case):
    """Every verb of p2pctl that reads from the bus."""

    def json(self, code, *words, **more):
        done = self.bus.ctl(*words, "--json", **more)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        self.assertRegex(found["schema"], r"^p2pd\.[a-z-]+/1$")
        return found

    def test_apply_history_and_revert(self):
        self.assert_ctl(3, "is-ready")
        self.assertEqual(self.json(3, "status")["state"], "idle")
        self.assertIn("ready", self.assert_ctl(0, "apply", "work"))
        self.assertEqual(self.bus.status()["result"], "ready")
        self.assert_ctl(0, "is-ready", user=NOBODY)
        self.assertRegex(self.assert_ctl(0, "metrics", user=NOBODY), r"(?m)^p2pd_ready 1$")
        self.assertIn("/p2pd.ready=true\n", self.assert_ctl(0, "features", user=NOBODY))
        self.assertTrue((self.bus.runtime / "ready").exists())
        for user in (0, NOBODY):
            self.assertEqual(self.json(0, "status", user=user)["state"], "ready")
            self.assertEqual(len(self.json(0, "history", user=user)["runs"]), 1)
        self.assertEqual(self.json(0, "apply", "work")["state"], "ready")
        self.assertIn("undone", self.assert_ctl(0, "revert"))
        self.assert_ctl(3, "is-ready")
        self.assertFalse((self.bus.runtime / "ready").exists())
        self.assert_unchanged()

    def test_a_look_that_waited_for_a_proof_does_not_prove_it_again(self):
        def look():
            return self.bus.spawn("prove", self.bus.inside(self.bus.bin / "p2pd-worker", "prove"))

        def waits(process):
            with contextlib.suppress(FileNotFoundError):  # a descriptor that was closed meanwhile
                return any(fd.readlink().name == "lock" for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir())
        run = self.apply_held()
        waiting = look()
        until(lambda: waits(waiting), "it waits for who is at work")
        self.finish()
        self.assertEqual(waiting.wait(60), 0)
        self.assert_one_run(run)
        self.assertEqual(look().wait(60), 0)  # no worker holds the lock: p2pctl reads at once
        self.assertEqual({one["plan"] for one in self.json(0, "history")["runs"]}, {"work", "verify"})

    def test_apply_no_block_status_pause_resume(self):
        self.bus.hold()
        begun = time.monotonic()
        self.assertEqual(self.json(0, "apply", "work", "--no-block")["state"], "walking")
        self.assertLess(time.monotonic() - begun, 10)
        until(self.bus.held, "at the benchmark")
        self.assertRegex(self.assert_ctl(3, "status", user=NOBODY), r"walking(.|\n)*proof")
        self.assert_ctl(3, "is-ready")
        self.assert_ctl(0, "pause")
        self.finish("paused")
        self.assertEqual(self.json(3, "status")["state"], "paused")
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

    def test_a_terminal_is_shown_a_picture(self):
        """It fits the width of the terminal, shows progress, and is erased at the end; Ctrl-C leaves the run alone."""
        self.apply_held()
        master, slave = open_terminal(columns=60)
        watching = self.bus.start_ctl("status", "--watch", stdout=slave)
        self.addCleanup(watching.communicate)
        self.addCleanup(watching.kill)
        os.close(slave)
        shown = b""
        while b"Ctrl-C detaches" not in shown:
            shown += os.read(master, 65536)
        lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown.decode()).replace("\r", "").splitlines()
        picture = lines[next(i for i, line in enumerate(lines) if "to do" in line):]
        self.assertRegex(picture[0], r"^work \[#*-+\] \d of \d to do, \d+ s")
        self.assertRegex("\n".join(picture), r"\n  (checking|fixing) proof: .*")
        self.assertLessEqual(max(map(len, picture)), 60)
        watching.send_signal(signal.SIGINT)
        self.assertEqual(watching.wait(timeout=20), 0)
        self.assertEqual(self.bus.status()["state"], "walking")
        os.close(master)
        self.finish()

    def test_watching_as_json_is_one_document_a_line(self):
        self.apply_held()
        watching = self.bus.start_ctl("status", "--watch", "--json", user=NOBODY)
        self.addCleanup(watching.kill)
        time.sleep(0.5)
        self.finish()
        self.bus.settle("ready")
        time.sleep(0.5)
        watching.send_signal(signal.SIGINT)
        states = [json.loads(line)["state"] for line in watching.communicate(timeout=20)[0].splitlines()]
        self.assertEqual((states[0], states[-1]), ("walking", "ready"))

    def test_blocked_retry_cancel(self):
        self.assertIn("stuck", self.assert_ctl(4, "apply", "stuck"))
        run = self.bus.status()["run"]
        self.assert_ctl(4, "retry")
        self.assertEqual(self.json(4, "retry")["state"], "blocked")
        self.assertEqual(self.bus.status()["run"], run)
        self.assert_ctl(0, "cancel")
        self.assertEqual(self.bus.status()["result"], "cancelled")
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


if __name__ == "__main__":
    unittest.main()
