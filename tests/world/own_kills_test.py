#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""own_kills_test.py ROOT [--layout NAME] [--sample K] [--jobs J] [ACTION]...: kills each fix before each call that changes a file.

For every row of actions_test.py, on its ground: SIGKILL right before call N of p2pctl apply that creates, writes, renames, removes or
syncs a file, for every N; then p2pctl apply, with the reboots that it asks for, until it has settled. The calls after such a reboot are
kill points, too. The tree must be equal to that of an unkilled apply: paths, kind, content, mode, owner, extended attributes;
not_compared says what may differ. The same for p2pctl revert on the applied tree, which must end as the ground. Calls of the tools that
p2pctl starts do not count: kills_test.py covers those.
The state that a kill leaves is copied out of one run that kill_at stops before each call; if nothing was written since the last stop,
the last copy is used again. If a tool runs at that moment, a separate run is killed, and the tool continues.
--sample K: K points of each sweep, evenly spread; 0: all; default: P2PD_OWN_KILLS, else 0. --layout NAME: of layouts.py, for
its rows instead. Needs root.
Prints the differences, a line for each action, and the totals.
"""
import argparse
import concurrent.futures
import contextlib
import os
import re
import shutil
import socket
import sys
import threading
import time
import zlib

sys.dont_write_bytecode = True
from actions_test import ROWS, Ground, settle  # noqa: E402
import layouts  # noqa: E402
from world_tree import arguments, need  # noqa: E402

KILLED = 137
BOOTS = ("rebooting", "reverting")


def written(upper):
    """Contents of a folder that show whether anything was written to it: inode, time of the last change and size of each file."""
    return {entry.path: (info.st_ino, info.st_ctime_ns, info.st_size) for entry in walk(upper) for info in (entry.stat(follow_symlinks=False),)}


def walk(folder):
    for entry in os.scandir(folder):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)


class Sweep:
    """Kills of one start of p2pctl on trees like `on`, each of which must end as `wanted` says."""

    def __init__(self, name, words, on, since, wanted, asked):
        self.name, self.words, self.on, self.since, self.wanted, self.asked = name, words, on, since, wanted, asked
        self.room, self.failures, self.tried, self.alike, self.seconds = threading.Semaphore(2 * asked.jobs), [], 0, 0, 0
        self.unkilled = self.tree("unkilled")
        status, told = self.start(self.unkilled, 0)
        need(status == 0, f"{name}, unkilled: {status} {told}")
        self.points = int(self.unkilled.said.split()[-1])
        self.boots = told["state"] in BOOTS

    def tree(self, name, upper=None):
        tree = type(self.on)(self.on.work.parent, f"{self.name}-{name}", self.on, self.since, upper)
        for boot in ("boot_id", "cmdline"):  # the same boot
            shutil.copy(self.on.work / boot, tree.work / boot)
        return tree

    def begin(self, tree, *how, **options):
        return tree.start(*self.words, live=True, inside=("env", "LD_LIBRARY_PATH=/mnt/lib", "/mnt/bin/kill_at", *how, "--"), **options)

    def start(self, tree, number):
        return tree.finish(self.begin(tree, number))

    def stops(self, tree):
        """Number of each call of a run on `tree`, and True if a tool runs then; the run waits until the next one is requested."""
        ours, theirs = socket.socketpair()
        with ours, ours.makefile("rw") as told:
            process = self.begin(tree, "each", theirs.fileno(), pass_fds=(theirs.fileno(),))
            theirs.close()
            for line in told:
                number, *busy = line.split()
                yield int(number), bool(busy)
                told.write("\n")
                told.flush()
        status, said = tree.finish(process)
        need(status == 0, f"{self.name}, stopped at each call: {status} {said}")

    def chosen(self):
        count = min(self.points, self.asked.sample or self.points)
        first = zlib.crc32(self.name.encode()) % self.points  # a different one in each sweep
        return {(first + index * self.points // count) % self.points + 1 for index in range(count)}

    def kill(self, number):
        """A tree as a kill before a call of a separate run left it; None if that run made fewer calls than the one counted."""
        tree = self.tree(number)
        status, told = self.start(tree, number)
        if status != KILLED:
            tree.close()
            need(status == 0, f"killed: {status} {told}")
            return None
        return tree

    def ends(self, tree):
        tree.boots_still()
        told = settle(tree, *self.words)
        need(told["result"] == ("done" if self.words[0] == "apply" else "reverted"), told)
        self.wanted(tree)

    def point(self, number, tree):
        """Kills at one call; returns whether a kill was made, and the error if the outcome is wrong."""
        try:
            tree = tree or self.kill(number)
            if tree:
                with contextlib.closing(tree):
                    self.ends(tree)
            return tree is not None, None
        except Exception as error:  # reported as the failure of this point
            told = "\n    ".join(str(error).splitlines()[:4])[:1000]
            why = f"FAIL {self.name}, killed before call {number}: {told}"
            print(why, flush=True)
            return True, why
        finally:
            self.room.release()

    def run(self):
        began, walker, before, last, killed = time.monotonic(), self.tree("walker"), None, None, []
        chosen = self.chosen()
        with concurrent.futures.ThreadPoolExecutor(self.asked.jobs) as workers:
            for number, busy in self.stops(walker):
                if number not in chosen:
                    continue
                now = None if busy else written(walker.upper)
                if now is not None and now == before:
                    last.append(number)
                    continue
                before, last = now, [number]
                self.room.acquire()
                tree = None if busy else self.tree(number, walker.upper)
                killed.append((last, workers.submit(self.point, number, tree)))
        walker.close()
        for numbers, done in killed:
            killed_there, why = done.result()
            self.tried += len(numbers) if killed_there else 0
            self.alike += len(numbers) - 1
            self.failures += [why] * len(numbers) if why else []
        self.seconds = time.monotonic() - began
        return self


def left_by_p2pd(tree):
    """Names of the files in p2pd's own folder."""
    folder = tree.file("/var/lib/p2pd")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def sweeps_of(name, words, on, since, wanted, asked):
    """A sweep for each boot that it takes."""
    found = []
    while not found or found[-1].boots:
        found.append(Sweep(f"{name}-{len(found)}", words, on, since, wanted, asked).run())
        on = found[-1].unkilled
        on.boot()
    for sweep in reversed(found):
        sweep.unkilled.close()
    return found


def of_row(work, ground, row, asked, shown=None):
    """Sweeps of one row; `shown`: its name, if the action's is not enough."""
    name, parameters, on, when = row
    shown = shown or re.sub(r"\W+", "-", f"{name} {parameters.get('by', '')} {on if on == layouts.ANOTHER_BRANCH else ''}").strip("-")
    before = ground(on)
    applied = type(before)(work, f"{shown}-applied", before)
    apply = ("apply", applied.plan([(name, parameters)]))
    settle(applied, *apply)
    reverted = Sweep.tree(argparse.Namespace(on=applied, since=before, name=shown), "reverted")
    settle(reverted, "revert")
    makes_images = any(str(path).startswith("boot/initrd.img-") for path in applied.touched())
    own = {"apply": left_by_p2pd(applied), "revert": left_by_p2pd(reverted)}

    def as_applied(tree):
        tree.same(applied, when=(*when, "walks"))
        need(not makes_images or tree.in_images() == applied.in_images(), "other files are in the images")
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


def asker():
    """Parser of the words that every sweep takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("actions", nargs="*")
    parser.add_argument("--sample", type=int, default=int(os.environ.get("P2PD_OWN_KILLS") or 0))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    print(f"{'action':32}" + "   ".join(f"{verb:>9}{'tried':>7}{'equal':>7}{'s':>7}" for verb in ("apply", "revert")))
    return parser


def totals(sweeps, began):
    """Prints the totals; returns the exit status."""
    points, tried, alike = (sum(getattr(sweep, key) for sweep in sweeps) for key in ("points", "tried", "alike"))
    equal = tried - sum(len(sweep.failures) for sweep in sweeps)
    print(f"{points} calls, {alike} of those tried left what the one before left; {time.monotonic() - began:.0f} s\nown kills: {tried} points, {equal} equal")
    return 0 if 0 < tried == equal else 1


def main():
    began = time.monotonic()
    root, work, words = arguments()
    parser = asker()
    parser.add_argument("--layout", choices=[layout.name for layout in layouts.LAYOUTS])
    asked = parser.parse_args(words)
    ground, rows, sweeps = Ground(work, root), ROWS, []
    for layout in layouts.LAYOUTS:
        if layout.name == asked.layout:
            ground, rows = layouts.Machine(work, root, layout).ground, layouts.rows_of(layout)
    for row in rows:
        if not asked.actions or row[0] in asked.actions:
            sweeps += of_row(work, ground, row, asked)
    return totals(sweeps, began)


if __name__ == "__main__":
    sys.exit(main())
