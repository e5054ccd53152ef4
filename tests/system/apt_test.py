#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apt_test.py ROOT [CASE]... [--seed S]: faults of p2pd while a fix runs apt, in a booted systemd; apt is not affected. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
A seed draws the same instants. Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import os
import random
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
from namespaces import arguments  # noqa: E402
from service import SECONDS, Scenarios, cases_of, expect, with_files  # noqa: E402

JOB, WORKER, BUS = "p2pd-job.service", "p2pd-worker.service", "p2pd.service"
TERMS, TERM_SECONDS = 6, 2  # number of SIGTERMs, and seconds that apt takes there
PACKAGES = ("slow-postinst", "cuda-toolkit-12-8")


def under_way(machine):
    """Starts a run whose fix runs apt, in a unit of its own; returns its number."""
    run = machine.apply("toolkit")
    machine.apt_works()
    said = machine.run(f"systemctl status --no-pager {JOB} || true")
    expect("apt-get" in said, f"apt is not in {JOB}: {said[:800]}")
    return run


def apt_is_at_work(machine):
    return machine.unit(JOB, "ActiveState")[0] == "activating"  # a oneshot that has not ended


def apt_lives(machine, job):
    expect(machine.pid(JOB) == job != 0 and apt_is_at_work(machine), "apt was ended")


def same_end(machine, run, seconds=SECONDS):
    """Checks that the run is done, apt ran once from begin to end, and nothing is incomplete."""
    machine.ends("done", run)
    told = machine.run("cat /var/log/slow-postinst").split()
    expect(told == ["begin", *map(str, range(1, seconds + 1)), "end"], f"the package was configured otherwise: {told}")
    expect(machine.run("dpkg --audit") == "", "dpkg is not sound")
    machine.run("/usr/local/cuda-12.8/bin/nvcc && test -e /etc/profile.d/p2pd-cuda.sh")
    for package in PACKAGES:
        machine.run(f"dpkg-query -W -f '${{db:Status-Status}}' {package} | grep -qx installed")
    steps = machine.status()["steps"]
    expect([step["status"] for step in steps] and steps[0]["verdict"] == "pass", f"p2pd shows {steps}")
    machine.until(lambda: machine.unit(JOB, "ActiveState")[0] == "inactive", f"{JOB} is no longer there", 3)


def kill(machine, *units):
    """SIGKILL to the main processes of units, at once."""
    for pid in [machine.seen(machine.pid(unit)) for unit in units]:
        os.kill(pid, signal.SIGKILL)


def back(machine, unit, before):
    machine.until(lambda: machine.pid(unit) not in (0, before), f"{unit} is back", 30)


# ---- kill -9 ----------------------------------------------------------------------------------------------------------

def case_unharmed(machine):
    run = under_way(machine)
    same_end(machine, run)
    machine.run("p2pctl revert --yes")
    machine.ends("reverted")
    expect(machine.shell(f"dpkg-query -W {' '.join(PACKAGES)}").returncode != 0, "the packages are still there")


def case_kill_9_of_p2pd(machine):
    run, before, worker = under_way(machine), machine.pid(BUS), machine.pid(WORKER)
    kill(machine, BUS)
    status = machine.status()  # from a new p2pd, or from the worker
    expect(status["run"] == run and status["state"] == "walking", f"it shows {status}")
    back(machine, BUS, before)
    expect(machine.pid(WORKER) == worker, "the worker is another one")
    same_end(machine, run)


def case_kill_9_of_the_worker(machine):
    run, before, job = under_way(machine), machine.pid(WORKER), machine.pid(JOB)
    kill(machine, WORKER)
    back(machine, WORKER, before)
    apt_lives(machine, job)
    same_end(machine, run)


def case_kill_9_of_both(machine):
    run, before, job = under_way(machine), machine.pid(WORKER), machine.pid(JOB)
    kill(machine, BUS, WORKER)
    back(machine, WORKER, before)
    apt_lives(machine, job)
    same_end(machine, run)


@with_files(seconds=8)
def case_kill_9_again_and_again(machine):
    run, job = under_way(machine), machine.pid(JOB)
    for _ in range(3):
        before = machine.pid(WORKER)
        kill(machine, WORKER)
        back(machine, WORKER, before)
    apt_lives(machine, job)
    same_end(machine, run, 8)


# ---- actions of an administrator, an upgrade, needrestart ---------------------------------------------------------------

def case_stop(machine):
    """A stopped worker leaves apt alone; after a start the run continues where it was."""
    run, job = under_way(machine), machine.pid(JOB)
    machine.run(f"systemctl stop {WORKER}", timeout_s=30)
    apt_lives(machine, job)
    expect(machine.unit(WORKER, "Result", "ActiveState") == ["success", "inactive"], f"{machine.unit(WORKER, 'Result', 'ActiveState')}")
    machine.run(f"systemctl start {WORKER}")
    same_end(machine, run)


def case_stopped_until_apt_has_ended(machine):
    run = under_way(machine)
    machine.run(f"systemctl stop {WORKER}", timeout_s=30)
    machine.until(lambda: not apt_is_at_work(machine), "apt has ended", 30)
    machine.run(f"systemctl start {WORKER}")
    same_end(machine, run)


def case_restart(machine):
    run, job = under_way(machine), machine.pid(JOB)
    machine.run(f"systemctl restart {WORKER} {BUS}", timeout_s=30)
    apt_lives(machine, job)
    same_end(machine, run)


def case_daemon_reexec(machine):
    run, job = under_way(machine), machine.pid(JOB)
    machine.run("systemctl daemon-reexec")
    apt_lives(machine, job)
    same_end(machine, run)


def case_upgrade_of_p2pd(machine):
    """The files are replaced as dpkg does it, then the package's scripts run."""
    run, job, worker = under_way(machine), machine.pid(JOB), machine.pid(WORKER)
    layer = machine.lowers[0]
    for path in (path for path in (layer / "usr").rglob("*") if path.is_file()):
        file = machine.path / path.relative_to(layer)
        fresh = file.with_name(file.name + ".dpkg-new")
        shutil.copy2(path, fresh)
        os.replace(fresh, file)
    machine.run("systemd-sysusers p2pd.conf; systemd-tmpfiles --create p2pd.conf; systemctl daemon-reload; journalctl --update-catalog")
    machine.run(f"systemctl try-restart {WORKER} {BUS} p2pd-worker.socket", timeout_s=30)
    apt_lives(machine, job)
    expect(machine.pid(WORKER) != worker, "the worker is the old one")
    same_end(machine, run)


@with_files(seconds=10)
def case_needrestart(machine):
    """A library is replaced, and needrestart restarts what uses it: not the worker in the middle of its work."""
    run, job, worker = under_way(machine), machine.pid(JOB), machine.pid(WORKER)
    library = machine.run("readlink -f /usr/lib/x86_64-linux-gnu/libsqlite3.so.0")
    machine.run(f"cp -p {library} {library}.new && mv {library}.new {library}")
    said = machine.run("NEEDRESTART_MODE=a needrestart -r a -l 2>&1", timeout_s=60)
    expect(BUS in said or WORKER in said, f"needrestart names nothing of p2pd: {said}")
    apt_lives(machine, job)
    expect(machine.pid(WORKER) == worker, "the worker was restarted")
    same_end(machine, run, 10)


# ---- SIGTERM ----------------------------------------------------------------------------------------------------------

@with_files(seconds=TERM_SECONDS)
def case_sigterm_at_any_moment(machine):
    """At random moments: the worker exits cleanly, the run stays open, and the next start completes it."""
    chance = random.Random(SEED)
    landed = []
    for _ in range(TERMS):
        at = chance.uniform(0, TERM_SECONDS + 1.5)
        run = machine.apply("toolkit")
        time.sleep(at)
        machine.run(f"systemctl kill --kill-who=main --signal=TERM {WORKER} || true")
        machine.until(f"! systemctl -q is-active {WORKER} || p2pctl status --json | grep -q '\"state\": *\"idle\"'", "the worker has ended", 30)
        landed.append(f"{at:.2f} s: {machine.status()['state']}")
        expect(machine.unit(WORKER, "Result")[0] == "success", f"the worker ended by {machine.unit(WORKER, 'Result')} at {at:.2f} s")
        machine.run(f"systemctl start {WORKER}")
        same_end(machine, run, TERM_SECONDS)
        machine.run("p2pctl revert --yes")
        machine.ends("reverted")
    print(f"  seed {SEED}; " + ", ".join(landed), flush=True)


SEED = 1


def main():
    global SEED
    root, work, words = arguments()
    if "--seed" in words:
        at = words.index("--seed")
        SEED = int(words[at + 1])
        del words[at:at + 2]
    scenarios = Scenarios(root, work, words)
    scenarios.apart(cases_of(globals()))
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
