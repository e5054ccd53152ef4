#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Machine restarts that a run needs, over the bus: requested from logind, beside those of others, and left to others. See bus_case.py."""
import signal
import time
import unittest

from bus_case import Case, PROPERTIES, until, write


class Reboots(Case):
    def wait_for_reboot(self):
        self.bus.settle("rebooting")
        return until(lambda: self.bus.notes("ScheduleShutdown"), "logind is asked")[-1]

    def test_a_planned_restart_ends_watching(self):
        watching = self.bus.start_ctl("status", "--watch")
        self.addCleanup(watching.kill)
        self.apply("arguments")
        self.wait_for_reboot()
        out, said = watching.communicate(timeout=20)
        self.assertEqual((watching.returncode, said), (0, ""))
        self.assertRegex(out, r"(?s)->  arguments .*\nA restart is due: .*\. The run continues after it; \"p2pctl status --watch\" ")

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

    def test_who_watches_is_told_a_finding_once(self):
        told = self.assert_ctl(0, "apply", "arguments", "--no-reboot").splitlines()
        found = [line for line in told if line.split()[:2] == ["->", "arguments"]]
        self.assertEqual(len(found), 1, f"what was found before a fix is told again after it: {told}")

    def test_a_worker_that_waited_long(self):
        """A connection that says nothing is closed by the bus: 30 s on a real one, 2 here."""
        time.sleep(3)
        self.apply("arguments")
        self.wait_for_reboot()

    def test_shutdown_c_is_a_pause(self):
        run = self.apply("arguments")
        self.wait_for_reboot()
        self.assertEqual(self.login("CancelScheduledShutdown"), [True])
        self.bus.settle("paused")
        self.assertFalse((self.bus.tree / "run/motd.d/p2pd").exists())
        self.assertEqual(self.root.call("Resume")[0], run)
        self.bus.settle("rebooting")
        until(lambda: len(self.bus.notes("ScheduleShutdown")) == 2, "asked again")

    def login(self, method, *words):
        return self.root.call(method, *words, destination="org.freedesktop.login1", path="/org/freedesktop/login1",
                              interface="org.freedesktop.login1.Manager")

    def scheduled(self):
        value = self.root.call("Get", "ss", "org.freedesktop.login1.Manager", "ScheduledShutdown", destination="org.freedesktop.login1",
                               path="/org/freedesktop/login1", interface=PROPERTIES)[0].value
        return tuple(value)

    def test_a_shutdown_that_somebody_else_has_scheduled_stays(self):
        """p2pd waits or is blocked, as the policy says, and reports the scheduled shutdown."""
        theirs = ("poweroff", int((time.time() + 7200) * 1e6))
        self.login("ScheduleShutdown", "st", *theirs)
        run = self.apply("arguments")
        status = self.bus.settle("blocked")
        self.assertRegex(status["reason"], r"somebody else has scheduled a poweroff for 20\d\d-\d\d-\d\d \d\d:\d\d")
        self.assertEqual(self.scheduled(), theirs)
        self.login("CancelScheduledShutdown")
        self.assertEqual(self.root.call("Retry")[0], run)
        until(lambda: self.scheduled()[0] == "reboot", "it goes on")

    def test_it_stays_without_the_service_too(self):
        for name in ("p2pd", "walk"):
            self.bus.end(name)
        schedule, asked = self.bus.tree / "run/systemd/shutdown/scheduled", self.bus.tree / "run/systemctl"
        write(self.bus.place / "tools/systemctl", "#!/bin/sh\necho \"$@\" >> /run/systemctl\n", 0o755)
        write(schedule, f"USEC={int((time.time() + 7200) * 1e6)}\nWARN_WALL=1\nMODE=poweroff\n")
        said = self.assert_ctl(4, "apply", "arguments", "--no-dbus")
        self.assertRegex(said, r"somebody else has scheduled a poweroff for 20\d\d")
        self.assertFalse(asked.exists())
        schedule.unlink()
        self.bus.ctl("retry", "--no-dbus")
        self.assertEqual(asked.read_text(), "reboot\n")

    def test_a_plan_that_waits_says_for_what(self):
        self.write("etc/p2pd/plans/patient.yaml", "name: patient\ntitle: patient\npolicy: {busy: wait}\nsteps:\n"
                   "  - {gate: arguments, title: t, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [iommu=pt]}}\n")
        theirs = ("reboot", int((time.time() + 7200) * 1e6))
        self.login("ScheduleShutdown", "st", *theirs)
        self.apply("patient")
        until(lambda: "somebody else has scheduled a reboot" in self.bus.status().get("progress", {}).get("message", ""), "it says so")
        self.assertEqual((self.bus.status()["state"], self.scheduled()), ("walking", theirs))
        self.login("CancelScheduledShutdown")
        until(lambda: self.scheduled()[0] == "reboot" and self.scheduled() != theirs, "it goes on")

    def test_a_worker_that_starts_anew_takes_back_its_own_schedule_alone(self):
        self.apply("arguments")
        asked = self.wait_for_reboot()
        self.bus.end("walk", signal.SIGKILL)
        theirs = ("poweroff", int((time.time() + 7200) * 1e6))
        self.login("ScheduleShutdown", "st", *theirs)
        self.bus.start_walk()
        self.bus.settle("blocked")
        self.assertEqual(self.scheduled(), theirs)
        self.login("CancelScheduledShutdown")
        self.root.call("Retry")
        until(lambda: self.bus.notes("ScheduleShutdown")[-1] not in (asked, self.bus.notes("ScheduleShutdown")[1]), "scheduled anew")
        ours = self.scheduled()
        self.bus.end("walk", signal.SIGKILL)
        self.bus.start_walk()
        until(lambda: self.scheduled()[0] == "reboot" and self.scheduled() != ours, "its own is reverted, and made anew")

    def test_a_schedule_that_replaces_ours_is_a_pause(self):
        self.apply("arguments")
        self.wait_for_reboot()
        theirs = ("reboot", int((time.time() + 7200) * 1e6))
        self.login("ScheduleShutdown", "st", *theirs)
        self.bus.settle("paused")
        self.root.call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.assertEqual(self.scheduled(), theirs)

    def test_what_waits_for_the_reboot_is_told_so(self):
        self.nobody.watch()
        self.apply("arguments")
        self.wait_for_reboot()
        self.nobody.watch_until(lambda: False, timeout=0.5)
        told = [signal[1] for signal in self.nobody.told("StepChanged") if signal[0] == "arguments"]
        self.assertEqual(told[-1], "pending-reboot")
        self.assertNotIn("fixed", told)

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
