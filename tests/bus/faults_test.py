#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bad input, and kills at any moment, over the bus. See bus_case.py."""
import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import unittest

from bus_case import Case, ACCESS_DENIED, INVALID_ARGS, BusError, MANAGER, NAME, NOBODY, PROPERTIES, until, Variant


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

    def test_the_next_step_is_an_argument_of_its_own(self):
        self.apply_held()
        with self.assertRaises(BusError) as caught:
            self.root.call("Apply", "sa{sv}", "prove", {})
        self.assertNotIn("next", caught.exception.text)
        self.assertIn('"p2pctl status --watch"', caught.exception.next)
        done = self.bus.ctl("apply", "prove")
        self.assertEqual(done.stderr, f"p2pctl: {caught.exception.text}\n  next: {caught.exception.next}\n")
        self.finish()

    def test_wrong_moments(self):
        for method in ("Pause", "Resume", "Retry", "Cancel"):
            with self.subTest(method=method):
                self.assert_error("org.p2pd1.Error.State", method)
        self.assert_nothing_ran()

    def test_a_plan_that_is_none(self):
        self.write("etc/p2pd/plans/broken.yaml", "name: broken\nsteps: [{gate: a\n")
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
            pass  # the bus accepts no more of it
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
        try:  # it recovers by itself, or exits and systemd restarts it
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

    def test_a_status_that_is_none(self):
        """An invalid status stops nothing, and clients receive the next valid one."""
        self.apply()
        right = self.bus.settle("ready")
        pid = self.bus.processes["p2pd"].pid
        for wrong in ({"run": "seven"}, {"result": 7}, {"steps": 7}, {"steps": [7]}, {"steps": [{"id": 7, "verdict": 7}]}, {"progress": 7},
                      {"step": 7}, {"state": []}, {"reboots": -1, "reboots_at_most": "x"}, {"next": {}}, {"at_work": 7}):
            self.publish({**right, "run": right["run"] + 1, "result": "done", **wrong})
            time.sleep(0.1)
            for method in ("GetReport", "ListSteps"):
                with contextlib.suppress(BusError):
                    self.nobody.call(method)
            with contextlib.suppress(BusError):
                self.nobody.get_all()
            self.assertTrue(self.bus.running("p2pd"), f"{wrong}: {self.bus.said('p2pd')[-600:]}")
        self.publish({**right, "reason": "as it was"})
        until(lambda: self.nobody.get("Reason") == "as it was", "it follows")
        self.assertEqual(self.bus.processes["p2pd"].pid, pid)

    def publish(self, status):
        beside = self.bus.runtime / "status.new"
        beside.write_text(json.dumps(status))
        beside.rename(self.bus.runtime / "status.json")

    def test_a_worker_that_answers_what_no_worker_does(self):
        """Each call gets an answer, and p2pd keeps running."""
        self.bus.end("walk")
        answers = ["x", '{"run": 7}', "REJECTED", "OK 7", f"OK {'0' * 32}\r\nAGREE_UNIX_FD\r\nl\1"]
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as worker:
            (self.bus.runtime / "walk.sock").unlink(missing_ok=True)
            worker.bind(str(self.bus.runtime / "walk.sock"))
            (self.bus.runtime / "walk.sock").chmod(0o666)
            worker.listen()
            for answer in answers:
                def serve(answer=answer):
                    for _ in range(3):  # p2pd tries again
                        connection = worker.accept()[0]
                        connection.recv(4096)
                        connection.sendall(answer.encode() + b"\r\n")
                        connection.close()
                thread = threading.Thread(target=serve, daemon=True)
                thread.start()
                self.assert_error(("org.p2pd1.Error.Io", "org.p2pd1.Error.Invalid"), "Pause")
                thread.join(10)
                self.assertTrue(self.bus.running("p2pd"), f"{answer}: {self.bus.said('p2pd')[-600:]}")

    def test_bytes_that_no_client_sends(self):
        """The worker drops them, and keeps serving."""
        pid = self.bus.processes["walk"].pid
        for sent in (b"", b"\0", b'{"do": "revert"}\n', b"\0AUTH\r\n", bytes(range(256)) * 64, b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n" + b"l" * 100_000):
            for _ in range(40):
                with contextlib.closing(socket.socket(socket.AF_UNIX)) as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.connect(str(self.bus.runtime / "walk.sock"))
                    client.sendall(sent)
        run = until(lambda: self.bus.ctl("pause").returncode != 0 and "temporarily" not in self.bus.ctl("pause").stderr and self.apply(), "the worker has dropped them")
        self.bus.settle("ready")
        self.assert_one_run(run)
        self.assertEqual(self.bus.processes["walk"].pid, pid)

    def test_a_client_that_says_nothing(self):
        """The worker ends at once, when told to."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
            silent.connect(str(self.bus.runtime / "walk.sock"))
            begun = time.monotonic()
            self.assertEqual(self.bus.end("walk"), 0)
            self.assertLess(time.monotonic() - begun, 10)

    def test_idle(self):
        """An idle process exits, and only an idle one."""
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

    def test_an_error_at_boot_is_tried_again_three_times(self):
        """Here the error of a rollback that cannot be completed."""
        self.apply_held()
        self.bus.end("walk", signal.SIGKILL)
        self.bus.hold(False)
        with contextlib.closing(sqlite3.connect(self.bus.state / "state.db")) as database, database:
            database.execute("UPDATE runs SET state = 'reverting'")
        next((self.bus.state / "undo").glob("*.json")).write_text("{")
        self.bus.spawn("walk", self.bus.inside(self.bus.bin / "p2pd-worker", environment={"P2PD_RETRY_S": "0", "P2PD_IDLE_S": "0"}))
        self.assertEqual(self.bus.processes["walk"].wait(60), 1)
        self.assertEqual(self.bus.said("walk").count("error: "), 4, self.bus.said("walk"))


if __name__ == "__main__":
    unittest.main()
