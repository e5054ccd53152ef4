#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kills_test.py ROOT [--kills N] [--seed S] [--each K] [--jobs J]: the whole swap and its revert, killed midway. Needs root.

The first walk is not killed: which tool runs when is read from /proc every few milliseconds. Then walks on fresh overlays of ROOT get
K kills each: SIGKILL to p2pctl and all that it started, at random instants of the time spent in a tool; p2pctl is started again, with
the reboots that it asks for, until it ends. Every fourth walk is reverted after its third kill. Half of the kills are distributed by
the time a tool takes, half evenly, so that quick tools get some. Once applied the tree must be equal to that of the unkilled walk, once
reverted to ROOT: paths, kind, content, mode, owner, extended attributes; not_compared says what may differ. N is that of P2PD_KILLS
by default, else 200. A seed draws the same kills; the exact point of each in a tool depends on the machine, too.
Also kills the shipped plan as its purge begins, and removes the staged files.
Prints "ok NAME" or "FAIL NAME" a walk, how many kills landed in each tool, and the totals.
"""
import argparse
import collections
import os
import pathlib
import random
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True
from plan_test import Machine, back, fixed  # noqa: E402
from world_tree import ENTRY, Cases, Failed, Tree, arguments, need  # noqa: E402

OF_ENTRY = {"entry": ENTRY}
SWAP = [*((name, OF_ENTRY) for name in ("driver-runfile", "driver-source", "driver-build", "way-back", "driver-pins", "packaged-driver",
                                        "driver-userspace")),
        ("driver-modules", {**OF_ENTRY, "by": "dkms"}), ("nouveau-blacklist", {}),
        ("modprobe-options", {"module": "nvidia", "options": {"NVreg_EnableResizableBar": 1}, "registry_dwords": {"RMForceP2P": 1}}),
        ("initramfs", {}), ("kernel-cmdline", {"arguments": ["iommu=pt"]})]
TOOLS = {"apt-get": "apt", "apt-mark": "apt", "apt-cache": "apt", "file": "apt", "store": "apt", "dpkg": "dpkg", "dpkg-deb": "dpkg",
         "dpkg-query": "dpkg", "dpkg-split": "dpkg", "dkms": "dkms", "make": "make", "update-initramf": "update-initramfs",
         "mkinitramfs": "update-initramfs", "grub-mkconfig": "grub-mkconfig", "depmod": "depmod", "git": "git",
         "nvidia-uninstal": "runfile", "nvidia-installe": "runfile"}
OWN = "p2pctl"  # and its children that are none of these
BETWEEN_LOOKS_S = 0.003


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:  # it ended
        return ""


def tool_in(pid):
    """The innermost tool at work below a process."""
    found, deepest, left = OWN, -1, [(str(pid), 0)]
    while left:
        process, depth = left.pop()
        name = read(f"/proc/{process}/comm").strip()
        tool = TOOLS.get(name)
        if name == "sh" and "/NVIDIA-Linux-" in read(f"/proc/{process}/cmdline"):
            tool = "runfile"
        if tool and depth > deepest:
            found, deepest = tool, depth
        left += [(child, depth + 1) for child in read(f"/proc/{process}/task/{process}/children").split()]
    return found


class Walk:
    """The swap and its revert on one tree; `kills`: (phase, tool, seconds in that tool since the phase began)."""

    def __init__(self, tree, kills=(), turns_back=False):
        self.tree, self.kills, self.plan = tree, list(kills), tree.plan(SWAP, policy={"reboots": 9})
        self.turns_back = turns_back
        self.spent, self.landed, self.starts = collections.Counter(), [], 0

    def one(self, phase, *words):
        """Runs p2pctl once; returns None if it was killed."""
        process, last = self.tree.start(*words, live=True), time.monotonic()
        self.starts += 1
        while process.poll() is None:
            tool, now = tool_in(process.pid), time.monotonic()
            self.spent[phase, tool] += now - last
            last = now
            due = [kill for kill in self.kills if kill[:2] == (phase, tool) and kill[2] <= self.spent[phase, tool]]
            if due:
                self.kills.remove(due[0])
                if self.tree.kill(process)[0] == -9:
                    self.landed.append((phase, tool))
                return None
            time.sleep(BETWEEN_LOOKS_S)
        return self.tree.finish(process)

    def settle(self, verb, *words):
        phase, boots = verb, 0
        while boots < 4 and self.starts < 400:
            answer = self.one(phase, verb, *words)
            if answer is None:
                if verb == "apply" and self.turns_back and len(self.landed) == 3:
                    return None
                continue
            status, told = answer
            need(status == 0, f"{phase}: exit {status}: {told.get('reason', told)} {self.tree.said[-1500:]}")
            if told["state"] not in ("rebooting", "reverting"):
                return told
            self.tree.boot()
            phase, boots = f"{verb}, next boot", boots + 1
        raise Failed(f"{verb}: no end after {boots} boots and {self.starts} starts")

    def apply(self):
        """Applies the plan to its end; False if it has to be reverted."""
        told = self.settle("apply", self.plan)
        need(told is None or told["result"] == "done", told)
        return told is not None

    def revert(self):
        told = self.settle("revert")
        need(told["result"] == "reverted", told)

    def landed_in(self, verb):
        return [kill for kill in self.landed if kill[0].startswith(verb)]


def drawn(spent, count, chance):
    """`count` kills, spread over the tools half evenly and half by the time each takes."""
    by_tool = collections.Counter()
    for (_, tool), seconds in spent.items():
        by_tool[tool] += seconds
    whole = sum(by_tool.values())
    shares = {tool: count * (0.5 * seconds / whole + 0.5 / len(by_tool)) for tool, seconds in by_tool.items()}
    kills = []
    for number, tool in enumerate(sorted(shares)):
        reach = sum(shares[one] for one in sorted(shares)[:number + 1])
        phases = sorted((phase, seconds) for (phase, one), seconds in spent.items() if one == tool)
        for _ in range(round(reach) - len(kills)):
            phase, seconds = chance.choices(phases, [seconds for _, seconds in phases])[0]
            kills.append((phase, tool, chance.uniform(0, seconds)))
    chance.shuffle(kills)
    return kills


def of_dpkg(tree):
    """The end of the output of dpkg and of the packages' scripts."""
    log = tree.file("/var/log/apt/term.log")
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:]) if log.exists() else ""


def same_swap(tree, wanted):
    """Checks that all of the new driver is there, and nothing else than after the unkilled walk."""
    tree.same(wanted, when=["packages", "walks"])
    for module in ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"):
        need(tree.srcversion(module) == wanted.srcversion(module) != "", f"another {module}: {tree.loaded(module)}")


class Sweep:
    """Walks until every kill has landed."""

    def __init__(self, work, ground, wanted, kills, each):
        self.work, self.ground, self.wanted, self.pool, self.each = work, ground, wanted, kills, each
        self.lock, self.cases, self.walks = threading.Lock(), Cases(), 0
        self.landed, self.equal, self.seconds = collections.Counter(), 0, []

    def take(self):
        with self.lock:
            kills, self.pool = self.pool[:self.each], self.pool[self.each:]
            self.walks += 1
            return kills, self.walks

    def work_on(self):
        while self.pool and self.walks < 400 and self.cases.failed < 10:
            kills, number = self.take()
            began = time.monotonic()
            tree = Tree(self.work, f"walk-{number}", self.ground)
            walk, done = Walk(tree, kills, turns_back=number % 4 == 0), []
            try:
                if walk.apply():
                    same_swap(tree, self.wanted)
                done.append("apply")
                walk.revert()
                tree.same(when=["packages"])
                need(not tree.file("/var/lib/p2pd/way-back").exists(), "the package backup is still there")
                done.append("revert")
                why = None
            except Exception as error:  # reported as the failure of this walk
                why = f"{', '.join(' in '.join(kill) for kill in walk.landed)}\n{error if isinstance(error, Failed) else repr(error)}\n{of_dpkg(tree)}"
            tree.close()
            with self.lock:
                self.seconds.append(time.monotonic() - began)
                self.landed.update(walk.landed)
                self.equal += sum(len(walk.landed_in(verb)) for verb in done)
                # kills that did not happen are drawn at an earlier time
                self.pool += [(phase, tool, at / 2) for phase, tool, at in walk.kills]
                self.cases.say(f"walk {number}{', which turns back' * walk.turns_back}: killed {len(walk.landed_in('apply'))} times on the way, "
                               f"{len(walk.landed_in('revert'))} times in the rollback, {self.seconds[-1]:.0f} s", why)

    def run(self, jobs):
        workers = [threading.Thread(target=self.work_on) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def unkilled(work, ground):
    """Time that each phase spends in each tool, and the tree after apply; a second walk must match it."""
    wanted = Tree(work, "unkilled", ground)
    Walk(wanted).apply()
    need((wanted.work / "cmdline").read_text().find("p2pd.trial=1") > 0, "there was no trial boot")
    again = Tree(work, "unkilled-again", ground)
    walk = Walk(again)
    walk.apply()
    same_swap(again, wanted)
    walk.revert()
    again.same(when=["packages"])
    again.close()
    there = sum(seconds for (phase, _), seconds in walk.spent.items() if phase.startswith("apply"))
    print(f"unkilled: there in {there:.1f} s, back in {sum(walk.spent.values()) - there:.1f} s, {walk.starts} starts of p2pctl", flush=True)
    return wanted, walk.spent


def killed_and_cleaned(work, ground):
    """Kills geforce-p2p as the purge begins, and empties the cache: the purge goes on only after everything is staged again."""
    tree = Machine(work, "cleaned", ground)
    process = tree.start("apply", "geforce-p2p", live=True)
    purging = tree.file("/var/lib/p2pd/way-back/purging")
    while process.poll() is None and not purging.exists():
        time.sleep(BETWEEN_LOOKS_S)
    need(tree.kill(process)[0] == -9, f"it ended first: {tree.said[-2000:]}")
    need("libcuda1" in tree.installed(), "the purge came far")
    shutil.rmtree(tree.file("/var/cache/p2pd"))
    staged = ["runfile", "source", "build", "no-packages"]

    def in_order(steps, what):
        order = [step for step in steps if step in staged]
        need(order == staged, f"{what}: {order}")
    told = tree.p2pctl("plan", "geforce-p2p", live=True)[1]
    in_order([change["step"] for step in told["steps"] for change in step.get("changes", [])], "planned")
    had = len(fixed(tree))
    status, told, _ = tree.walk("apply", "geforce-p2p")
    need(status == 0 and told.get("result") == "ready", f"{status} {told} {tree.said[-3000:]}")
    in_order(fixed(tree)[had:], "done")
    back(tree)
    tree.close()


def main():
    began = time.monotonic()
    root, work, words = arguments()
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=int(os.environ.get("P2PD_KILLS") or 200))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--each", type=int, default=20, help="kills in a walk")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args(words)
    ground = Tree(work, "ground", root)
    ground.with_grub()
    cases = Cases()
    found = []
    if not cases.runs("unkilled, there and back", lambda: found.extend(unkilled(work, ground))):
        return 1
    cases.runs("killed as the purge begins, and the cache emptied", lambda: killed_and_cleaned(work, ground))
    wanted, spent = found
    sweep = Sweep(work, ground, wanted, drawn(spent, asked.kills, random.Random(asked.seed)), asked.each)
    sweep.run(asked.jobs)
    by_tool = collections.Counter()
    for (_, tool), count in sweep.landed.items():
        by_tool[tool] += count
    print(f"\n{'tool':20}{'s unkilled':>12}{'kills':>8}   of them there, next boot, back, next boot")
    phases = ("apply", "apply, next boot", "revert", "revert, next boot")
    for tool in sorted({tool for _, tool in spent}):
        seconds = sum(s for (_, one), s in spent.items() if one == tool)
        print(f"{tool:20}{seconds:12.2f}{by_tool[tool]:8}   " + " ".join(f"{sweep.landed[phase, tool]:4}" for phase in phases))
    made = sum(by_tool.values())
    seconds = sorted(sweep.seconds) or [0]
    print(f"\nkills: {made} made, {sweep.equal} resumed to the same tree; seed {asked.seed}, {sweep.walks} walks, "
          f"{seconds[len(seconds) // 2]:.0f} s each (median), {time.monotonic() - began:.0f} s in all")
    return 1 if cases.failed or sweep.cases.failed or made < asked.kills else 0


if __name__ == "__main__":
    sys.exit(main())
