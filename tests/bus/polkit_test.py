#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Authorization of callers by polkit, and behaviour while polkit fails. See bus_case.py."""
import signal
import time
import unittest

from bus_case import Case, ACCESS_DENIED, INTERACTIVE, WRITES, POLKIT_ACTION, BusError, GUEST, MessageFlag, NOBODY, until


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
        self.apply()  # root needs no authorization
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
        self.nobody.close()  # its questions end with it, so that other clients of that user can ask
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
        self.nobody.get("State")  # all of them are handled by then
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


if __name__ == "__main__":
    unittest.main()
