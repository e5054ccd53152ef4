#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many runs on one machine, over the bus: a second one that fails, and a history of many megabytes. See bus_case.py."""
import contextlib
import json
import sqlite3
import unittest

from bus_case import Case, INVALID_ARGS, until
from tree import differences, picture

SECOND = """name: second
title: a plan that fails on this machine
steps:
  - {gate: more, title: more options, check: modprobe-options, fix: modprobe-options, with: {module: nvidia_uvm, options: {uvm_disable_hmm: 1}}}
  - {gate: never, title: what nobody gives, check: kernel-cmdline, with: {arguments: [nobody.gives=1]}, after: [more]}
"""


class SecondRun(Case):
    def setUp(self):
        super().setUp()
        self.write("etc/p2pd/plans/second.yaml", SECOND)
        self.apply()
        self.bus.settle("ready")
        self.ready = picture(self.bus.tree)

    def assert_first_stays(self):
        self.assertEqual(differences(picture(self.bus.tree), self.ready), "")

    def test_it_fails(self):
        self.apply("second")
        status = self.bus.settle("failed")
        self.assert_first_stays()
        self.assertEqual((status["undone"], status["stays"]), (["more"], [{"run": 1, "plan": "work", "steps": ["options"]}]))
        self.assert_ctl(0, "is-ready")
        self.bus.restart_machine()
        self.bus.start_walk()
        self.bus.start_p2pd()
        self.assertEqual(json.loads(self.client().call("GetReport")[0])["stays"], status["stays"])
        self.client().call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.assert_unchanged()

    def test_it_is_cancelled(self):
        self.bus.hold()
        text = SECOND.replace("check: kernel-cmdline, with: {arguments: [nobody.gives=1]}", "check: p2p-bench").replace("gate: never", "goal: never")
        (self.bus.tree / "etc/p2pd/plans/second.yaml").write_text(text)
        self.ready = picture(self.bus.tree)
        self.apply("second")
        until(self.bus.held, "at the benchmark")
        self.root.call("Cancel")
        self.bus.hold(False)
        self.assertEqual(self.bus.settle("idle")["result"], "cancelled")
        self.assertFalse((self.bus.tree / "etc/hold").exists())
        self.ready = {path: entry for path, entry in self.ready.items() if path != "etc/hold"}
        self.assert_first_stays()
        self.assert_ctl(0, "is-ready")

    def test_revert_while_it_is_walked(self):
        self.bus.hold()
        self.root.call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.bus.hold(False)
        self.assert_unchanged()


class LargeJournal(Case):
    """35 MB, as a machine that proved at each boot for years had before old runs were pruned."""
    RUNS, FINDING = 200, 175_000

    def setUp(self):
        super().setUp()
        self.apply()
        self.bus.settle("ready")
        for name in ("p2pd", "walk"):
            self.bus.end(name)
        self.fill()
        self.bus.start_p2pd()

    def fill(self):
        finding = json.dumps({"evidence": [], "facts": {"x": "y" * self.FINDING}, "next": "", "summary": "was so", "verdict": "pass"}, separators=(",", ":"))
        database = sqlite3.connect(self.bus.state / "state.db")
        self.addCleanup(database.close)  # the last one to close it would remove the files that a reader needs
        with database:
            columns = database.execute("SELECT * FROM runs WHERE id=1").fetchone()
            for run in range(2, self.RUNS + 2):
                database.execute(f"INSERT INTO runs VALUES({','.join('?' * len(columns))})", (run, "verify", *columns[2:]))
                database.execute("INSERT INTO steps VALUES(?,'proof','holds',0,0,0,0,'',?)", (run, finding))
                database.execute("INSERT INTO events(time,boot_id,run,step,type,text) VALUES('t','b',?,'proof','proof','was so')", (run,))

    def pages(self, runs):
        """The pages of the newest runs."""
        page = json.loads(self.nobody.call("GetHistory", "u", runs)[0])
        yield page
        while page["before"]:
            page = json.loads(self.nobody.call("GetHistoryBefore", "ut", runs, page["before"])[0])
            yield page

    def test_pages(self):
        text = self.nobody.call("GetHistory", "u", 1000)[0]
        self.assertLess(len(text), 8 << 20)
        self.assertTrue(self.bus.running("p2pd"))
        pages = list(self.pages(1000))
        self.assertGreater(len(pages), 3)
        self.assertEqual([run["id"] for page in pages for run in page["runs"]], list(range(self.RUNS + 1, 0, -1)))
        events = [event["run"] for page in reversed(pages) for event in page["events"]]
        self.assertEqual(sorted(set(events)), list(range(1, self.RUNS + 2)))
        self.assertEqual(len(list(self.pages(30))[0]["runs"]), min(30, len(pages[0]["runs"])))
        self.assertLess(self.resident_mib("p2pd"), 128)
        self.assert_error(INVALID_ARGS, "GetHistoryBefore", "ut", 5, 1 << 63)
        self.assert_error(INVALID_ARGS, "GetHistoryBefore", "ut", 0, 5)

    def test_ctl_puts_pages_together(self):
        told = json.loads(self.assert_ctl(0, "history", "--json", "--lines", "60"))
        self.assertEqual([run["id"] for run in told["runs"]], list(range(self.RUNS + 1, self.RUNS - 59, -1)))
        self.assertEqual([event["run"] for event in told["events"]], list(range(self.RUNS - 58, self.RUNS + 2)))

    def test_the_next_run_prunes(self):
        self.bus.start_walk()
        self.apply()
        self.bus.settle("ready")
        with contextlib.closing(sqlite3.connect(self.bus.state / "state.db")) as database:
            size = database.execute("SELECT sum(length(finding)) FROM steps").fetchone()[0]
            self.assertLess(size, 31 * (self.FINDING + 1000))
            self.assertEqual(database.execute("SELECT count(*) FROM runs").fetchone()[0], self.RUNS + 2)
        oldest = list(self.pages(1000))[-1]["runs"][-2]
        self.assertEqual(oldest["steps"][0]["finding"], {"next": "", "summary": "was so", "verdict": "pass"})
        self.root.call("Revert")
        until(lambda: self.bus.status()["result"] == "reverted", "undone")
        self.assert_unchanged()


if __name__ == "__main__":
    unittest.main()
