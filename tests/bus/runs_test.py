#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Results of runs over the bus, and many runs on one machine: one that proves less than its plan requires, a second one that fails, and a
history of many megabytes. See bus_case.py."""
import contextlib
import json
import sqlite3
import unittest

from bus_case import Case, INVALID_ARGS, NOBODY, PROPERTIES, until
from tree import differences, picture

SECOND = """name: second
title: a plan that fails on this machine
steps:
  - {gate: more, title: more options, check: modprobe-options, fix: modprobe-options, with: {module: nvidia_uvm, options: {uvm_disable_hmm: 1}}}
  - {gate: never, title: what nobody gives, check: kernel-cmdline, with: {arguments: [nobody.gives=1]}, after: [more]}
"""


class Limited(Case):
    """A machine that is fit for less than the plan requires: copies and NCCL, not loads from a peer."""

    ONLY = ["copies", "nccl"]
    ALL = [*ONLY, "custom-all-reduce"]

    def setUp(self):
        super().setUp()
        self.write("etc/limited", "")

    def assert_files(self, *names):
        """Checks which of the files `limited` and `ready`, which tell how far P2P is proven, exist."""
        self.assertEqual([name for name in ("limited", "ready") if (self.bus.runtime / name).exists()], [*names])

    def assert_limited(self):
        found = self.client().get_all()
        self.assertEqual((found["State"], found["FitFor"], found["Step"]), ("limited", self.ONLY, ""))
        self.assertIn("for less than the plan wants", found["Reason"])
        self.assertEqual(json.loads((self.bus.runtime / "limited").read_text())["fit_for"], self.ONLY)
        self.assert_files("limited")
        for code, *words in ((5,), (0, "--for", "nccl"), (0, "--for", "copies,nccl"), (3, "--for", "custom-all-reduce"), (3, "--for", "nccl,atomics")):
            self.assert_ctl(code, "is-ready", *words, user=NOBODY)

    def each_boot(self):
        """Runs p2pd-worker as p2pd-prove.service does at the next boot; returns its exit status."""
        self.bus.restart_machine()
        self.bus.start_walk()
        self.bus.start_p2pd()
        return self.bus.spawn("prove", self.bus.inside(self.bus.bin / "p2pd-worker", "prove")).wait(60)

    def test_a_run_ends_limited(self):
        self.nobody.watch()
        run = self.apply()
        self.bus.settle("limited")
        self.assertTrue(self.nobody.watch_until(lambda: self.nobody.told("RunFinished")))
        (finished,) = self.nobody.told("RunFinished")
        self.assertEqual(finished[:2], [run, "limited"])
        told = [message.body[1]["FitFor"].value for message in self.nobody.signals if message.interface == PROPERTIES and "FitFor" in message.body[1]]
        self.assertEqual(told, [self.ONLY])
        self.assertEqual([(step[0], step[3]) for step in self.nobody.call("ListSteps")[0]], [("options", "pass"), ("proof", "limited")])
        self.assert_limited()
        self.assertNotEqual(picture(self.bus.tree), self.before, "what brought so much is kept")

    def test_by_every_verb(self):
        self.assertRegex(self.assert_ctl(5, "apply", "work"), r"(?m)^limited  (.|\n)*^ fit for +copies, nccl$")
        done = self.bus.ctl("apply", "work", "--json")
        again = json.loads(done.stdout)
        self.assertEqual((done.returncode, again["state"], again["changed"], again["fit_for"]), (5, "limited", False, self.ONLY))
        self.assertRegex(self.assert_ctl(5, "status", user=NOBODY), r"\Alimited ")
        metrics = self.assert_ctl(0, "metrics", user=NOBODY)
        for line in ("p2pd_ready 0", 'p2pd_state{state="limited"} 1', 'p2pd_fit_for{use="nccl"} 1', 'p2pd_fit_for{use="custom-all-reduce"} 0'):
            self.assertIn(f"\n{line}\n", metrics)
        self.assertNotIn("p2pd_blocked_step", metrics)
        features = self.assert_ctl(0, "features", user=NOBODY)
        for label in ("ready=false", "state=limited", "fit-for-copies=true", "fit-for-nccl=true", "fit-for-custom-all-reduce=false", "fit-for-atomics=false",
                      "fit-for-managed-memory=false"):
            self.assertIn(f"/p2pd.{label}\n", features)
        ready = json.loads(self.assert_ctl(5, "is-ready", "--json"))
        self.assertEqual((ready["ready"], ready["fit_for"]), (False, self.ONLY))
        self.assertRegex(self.assert_ctl(1, "is-ready", "--for", "nvshmem"), r"\Ap2pctl: --for: .*nvshmem.*copies, nccl, custom-all-reduce, atomics, managed-memory")

    def test_all_of_it_and_back(self):
        self.apply()
        self.bus.settle("limited")
        (self.bus.tree / "etc/limited").unlink()
        self.assert_ctl(0, "apply", "work")
        self.assert_files("ready")
        self.assertEqual(self.client().get("FitFor"), self.ALL)
        self.assert_ctl(0, "is-ready", "--for", ",".join(self.ALL))
        self.write("etc/limited", "")
        self.assert_ctl(5, "apply", "work")
        self.assert_limited()

    def test_the_next_boots(self):
        """Repeated quick proofs neither remove nor add a result."""
        self.apply()
        self.bus.settle("limited")
        (self.bus.tree / "etc/limited").unlink()  # the quick proof does not see it
        for boot in range(2):
            with self.subTest(boot=boot):
                self.assertEqual(self.each_boot(), 0)
                self.assertEqual(self.bus.status()["plan"], "verify")
                self.assert_limited()
        self.write("etc/broken", "")
        self.assertEqual(self.each_boot(), 3)
        self.assertNotIn(self.bus.status()["state"], ("limited", "ready"))
        self.assert_files()
        self.assertEqual(self.client().get("FitFor"), [])
        self.assert_ctl(3, "is-ready")

    def test_revert(self):
        self.apply()
        self.bus.settle("limited")
        self.assertIn("undone", self.assert_ctl(0, "revert"))
        self.assert_files()
        self.assertEqual(self.client().get("FitFor"), [])
        self.assert_unchanged()


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
