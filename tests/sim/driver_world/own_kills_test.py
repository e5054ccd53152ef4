#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""own_kills_test.py ROOT [--every K] [--within S] [--jobs J] [ACTION]...: each fix, killed before each call by which p2pd changes a file.

For every row of actions_test.py, on its ground: SIGKILL (kill_at) right before call N of p2pctl apply that creates, writes, renames,
removes or syncs a file, for every K-th N (1 unless told; each sweep begins at another one); then p2pctl apply, with the reboots that it
asks for, until it has settled. The calls after such a reboot are points, too. The tree must be equal to that of an apply that nobody
killed: paths, kind, content, mode, owner, extended attributes; not_compared says what may differ. The same for p2pctl revert on the
applied tree, which must end as the ground. Calls of the tools that p2pctl starts do not count: those are kills_test.py's.
--within S: no new point of a sweep after S seconds; the table says how many were tried. Needs root.
Prints what is not equal, a line an action, and the totals.
"""
import argparse
import os
import re
import shutil
import sys
import threading
import time
import zlib

sys.dont_write_bytecode = True
from actions_test import ROWS, Ground, settle  # noqa: E402
from world_tree import Tree, arguments, need  # noqa: E402

KILLED = 137
BOOTS = ("rebooting", "reverting")


class Sweep:
    """Kills of one start of p2pctl on trees like `on`, each of which must end as `wanted` says."""

    def __init__(self, name, words, on, since, wanted, asked):
        self.name, self.words, self.on, self.since, self.wanted, self.within = name, words, on, since, wanted, asked.within
        self.lock, self.failures, self.tried, self.seconds = threading.Lock(), [], 0, 0
        self.unkilled = self.tree("unkilled")
        status, told = self.start(self.unkilled, 0)
        need(status == 0, f"{name}, unkilled: {status} {told}")
        self.points = int(self.unkilled.said.split()[-1])
        self.boots = told["state"] in BOOTS
        self.left = list(range(1 + zlib.crc32(name.encode()) % asked.every, self.points + 1, asked.every))

    def tree(self, name):
        tree = Tree(self.on.work.parent, f"{self.name}-{name}", self.on, self.since)
        for boot in ("boot_id", "cmdline"):  # the same boot
            shutil.copy(self.on.work / boot, tree.work / boot)
        return tree

    def start(self, tree, number):
        return tree.finish(tree.start(*self.words, live=True, inside=("env", "LD_LIBRARY_PATH=/mnt/lib", "/mnt/bin/kill_at", number, "--")))

    def point(self, number):
        tree = self.tree(number)
        try:
            status, told = self.start(tree, number)
            # a run may take fewer calls than the one that was counted: then nobody killed it
            need(status in (0, KILLED), f"killed: {status} {told}")
            if status == 0 and told["state"] in BOOTS:
                tree.boot()
            told = settle(tree, *self.words)
            need(told["result"] == ("done" if self.words[0] == "apply" else "reverted"), told)
            self.wanted(tree)
        finally:
            tree.close()
        return status == KILLED

    def work_on(self):
        began = time.monotonic()
        while self.left and len(self.failures) < 10 and time.monotonic() - began < self.within:
            with self.lock:
                number = self.left.pop(0) if self.left else None
            if number is None:
                return
            try:
                why, killed = None, self.point(number)
            except Exception as error:  # a thread must not end without a word
                told = "\n    ".join(str(error).splitlines()[:4])[:1000]
                why, killed = f"FAIL {self.name}, killed before call {number}: {told}", True
            with self.lock:
                self.tried += killed
                if why:
                    self.failures.append(why)
                    print(why, flush=True)

    def run(self, jobs):
        began = time.monotonic()
        workers = [threading.Thread(target=self.work_on) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.seconds = time.monotonic() - began
        return self


def left_by_p2pd(tree):
    """What p2pd's own folder holds beside its journal."""
    folder = tree.file("/var/lib/p2pd")
    return {path.name for path in folder.iterdir() if not path.name.startswith("journal")} if folder.exists() else set()


def in_images(tree):
    return {image.name: tree.run("lsinitramfs", f"/boot/{image.name}") for image in sorted(tree.path.glob("boot/initrd.img-*"))}


def sweeps_of(name, words, on, since, wanted, asked):
    """A sweep for each boot that it takes."""
    found = []
    while not found or found[-1].boots:
        found.append(Sweep(f"{name}-{len(found)}", words, on, since, wanted, asked).run(asked.jobs))
        on = found[-1].unkilled
        on.boot()
    for sweep in reversed(found):
        sweep.unkilled.close()
    return found


def of_row(work, ground, row, asked):
    name, parameters, on, when = row
    shown = re.sub(r"\W+", "-", f"{name} {parameters.get('by', '')}").strip("-")
    before = ground(on)
    applied = Tree(work, f"{shown}-applied", before)
    apply = ("apply", applied.plan([(name, parameters)]))
    settle(applied, *apply)
    reverted = Sweep.tree(argparse.Namespace(on=applied, since=before, name=shown), "reverted")
    settle(reverted, "revert")
    makes_images = any(str(path).startswith("boot/initrd.img-") for path in applied.touched())
    own = {"apply": left_by_p2pd(applied), "revert": left_by_p2pd(reverted)}

    def as_applied(tree):
        tree.same(applied, when=(*when, "walks"))
        need(not makes_images or in_images(tree) == in_images(applied), "other files are in the images")
        need(left_by_p2pd(tree) == own["apply"], f"/var/lib/p2pd holds {left_by_p2pd(tree)}, not {own['apply']}")

    def as_before(tree):
        tree.same(when=when)
        need(left_by_p2pd(tree) == own["revert"], f"/var/lib/p2pd holds {left_by_p2pd(tree)}, not {own['revert']}")

    as_before(reverted)
    reverted.close()
    there = sweeps_of(f"{shown}-apply", apply, before, None, as_applied, asked)
    back = sweeps_of(f"{shown}-revert", ("revert",), applied, before, as_before, asked)
    applied.close()
    cells = []
    for sweeps in (there, back):
        tried, failed = sum(sweep.tried for sweep in sweeps), sum(len(sweep.failures) for sweep in sweeps)
        points = "+".join(str(sweep.points) for sweep in sweeps)
        cells.append(f"{points:>9}{tried:7}{tried - failed:7}{sum(sweep.seconds for sweep in sweeps):7.0f}")
    print(f"{shown:32}{cells[0]}   {cells[1]}", flush=True)
    return there + back


def main():
    began = time.monotonic()
    root, work, words = arguments()
    parser = argparse.ArgumentParser()
    parser.add_argument("actions", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--within", type=float, default=10**6)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args(words)
    ground, sweeps = Ground(work, root), []
    print(f"{'action':32}" + "   ".join(f"{verb:>9}{'tried':>7}{'equal':>7}{'s':>7}" for verb in ("apply", "revert")))
    for row in ROWS:
        if not asked.actions or row[0] in asked.actions:
            sweeps += of_row(work, ground, row, asked)
    points, tried = (sum(getattr(sweep, key) for sweep in sweeps) for key in ("points", "tried"))
    equal = tried - sum(len(sweep.failures) for sweep in sweeps)
    print(f"{points} calls, {time.monotonic() - began:.0f} s\nown kills: {tried} points, {equal} equal")
    return 0 if 0 < tried == equal else 1


if __name__ == "__main__":
    sys.exit(main())
