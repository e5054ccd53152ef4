# SPDX-License-Identifier: MIT
"""Machines with p2pd installed, the plans of the scenarios, and the lines "ok NAME" and "FAIL NAME: why"."""
import json
import os
import pathlib
import shutil
import subprocess
import time

from machine import ENTER, HERE, Machine, MachineError, overlay

BUILD = pathlib.Path(os.environ.get("P2PD_BUILD") or HERE.parents[1] / "build/dev").resolve()
SETTLED = ("idle", "ready", "blocked", "failed", "paused")
BUSY_S = 120  # at most, for a run over a reboot
WRITES = ("Pause", "Resume", "Retry", "Cancel", "Revert")  # besides Apply
MANAGER = "org.p2pd1 /org/p2pd1 org.p2pd1.Manager"
SECONDS = 4  # duration of apt

PLAN = """# SPDX-License-Identifier: MIT
name: {name}
title: {title}
policy: {{{policy}}}
steps:
{steps}"""
STEPS = {
    "toolkit": "  - {gate: toolkit, title: The toolkit is there, check: cuda-toolkit, fix: cuda-toolkit, with: {version: 12-8}}\n",
    "none": "  - {gate: none, title: A toolkit that no archive has, check: cuda-toolkit, fix: cuda-toolkit, with: {version: 99-9}}\n",
    "gpus": "  - {gate: gpus, title: Ninety GPUs, check: gpu-inventory, with: {at_least: 90}}\n",
    "nobody": "  - {requires: nobody, title: Nobody is in the way of a restart, check: shutdown-inhibitors}\n",
    "argument": "  - {gate: argument, title: The kernel has it, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [test.p2pd=1]}}\n",
    "proof": "  - {goal: proof, title: P2P is proven, check: p2p-bench}\n",
    "patient": "  - {gate: argument, title: The kernel has it, check: kernel-cmdline, fix: kernel-cmdline, needs: [nobody],"
               " with: {arguments: [test.p2pd=1]}}\n",
}
PLANS = {  # name: its steps, its policy
    "toolkit": (["toolkit"], ""),
    "argument": (["argument"], ""),
    "both": (["toolkit", "argument"], ""),
    "proven": (["toolkit", "proof"], ""),
    "external": (["argument"], "reboot: external"),
    "patient": (["nobody", "patient"], "busy: wait"),
    "patient-late": (["nobody", "toolkit", "patient"], "busy: wait"),
    "blocked": (["gpus"], ""),
    "stuck": (["toolkit", "gpus"], ""),
    "fails": (["none"], "attempts: 1"),
}
ARGUMENT = "test.p2pd=1"


def files(config="reboot_delay_s: 1", seconds=SECONDS, more=None):
    """Files written into a machine before it boots."""
    plans = {f"/etc/p2pd/plans/{name}.yaml": PLAN.format(name=name, title=f"Plan {name}", policy=policy, steps="".join(STEPS[step] for step in steps))
             for name, (steps, policy) in PLANS.items()}
    return {**plans, "/etc/p2pd/p2pd.yaml": config + "\n", "/etc/slow-postinst": f"{seconds}\n", **(more or {})}


def install_files(build, tree):
    """Installs the files of a build, as its package would."""
    done = subprocess.run(["cmake", "--install", build, "--prefix", "/usr", "--strip"], check=False, env={**os.environ, "DESTDIR": str(tree)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise MachineError(f"cannot install {build}: is it built?\n{done.stdout[-2000:]}")


def installed(root, build, work):
    """The layer that the package of a build adds to a tree: its files, and the effects of its postinst."""
    layer = work / "installed"
    with overlay(work / "installing", layer, [root]) as tree:
        install_files(build, tree)
        if (needrestart := tree / "usr/share/p2pd/needrestart.conf").exists():
            shutil.copy(needrestart, tree / "etc/needrestart/conf.d/p2pd.conf")
        units = sorted(path.name for path in (tree / "usr/lib/systemd/system").glob("p2pd*") if "@" not in path.name)
        for argv in (["systemd-sysusers", "p2pd.conf"], ["systemd-tmpfiles", "--create", "p2pd.conf"],
                     ["systemctl", "preset", *units], ["journalctl", "--update-catalog"]):
            if argv[-1] == "p2pd.conf" and not (tree / f"usr/lib/{argv[0][8:]}.d/p2pd.conf").exists():
                continue
            done = subprocess.run([ENTER, tree, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                raise MachineError(f"{' '.join(argv)}: {done.stdout}")
    return layer


class Unexpected(Exception):
    """The machine is not as the scenario says."""


def expect(holds, why):
    if not holds:
        raise Unexpected(why)


class ServiceMachine(Machine):
    """A machine with p2pd on it."""

    def status(self):
        """Status of the newest run from p2pd; {} if p2pd does not answer."""
        answer = self.shell("p2pctl status --json")
        try:
            return json.loads(answer.stdout)
        except ValueError:
            return {}

    def published(self):
        """Status that the worker published on this boot; {} if there is none. Read from outside: a command in the machine would start p2pd,
        and add processes to a machine that shuts down."""
        try:
            return json.loads(pathlib.Path(f"/proc/{self.leader}/root/run/p2pd/status.json").read_text())
        except (OSError, ValueError):
            return {}

    def apply(self, plan):
        """Starts a run of a plan; returns its number."""
        before = self.status().get("run") or 0
        self.run(f"p2pctl apply --yes {plan} --no-block")
        return self.until(lambda: (now := self.published().get("run") or 0) > before and now, f"a run of {plan} began", 20)

    def state(self, *states, timeout_s=BUSY_S):
        """Waits, over reboots, until the newest run is in one of these states; returns the whole status."""
        return self.until(lambda: (now := self.published()).get("state") in states and now, f"the state is {' or '.join(states)}", timeout_s)

    def ends(self, result, run=None):
        """Waits, over reboots, until the newest run has settled with this result; returns the whole status."""
        status = self.state(*SETTLED)
        expect(status["result"] == result, f"the run ended as {status['state']}, '{status['result']}', not '{result}': {status['reason']}")
        expect(run is None or status["run"] == run, f"run {run} was asked for, and {status['run']} is there")
        return status

    def apt_works(self):
        """Waits until the slow package is being configured."""
        self.until("grep -q begin /var/log/slow-postinst 2>/dev/null && ! grep -q end /var/log/slow-postinst", "apt is at work", 30)

    def unit(self, unit, *properties):
        """Properties of a unit, as systemctl show gives them."""
        told = dict(line.split("=", 1) for line in self.run(f"systemctl show {unit} -p {','.join(properties)}").splitlines())
        return [told.get(name, "") for name in properties]

    def pid(self, unit):
        """Main process id of a unit, as the machine counts; 0: none."""
        return int(self.unit(unit, "MainPID")[0])

    def processes(self):
        """The running p2pd processes."""
        return self.shell("pgrep -a p2pd").stdout.strip()

    def journal(self, words=""):
        return self.run(f"journalctl --quiet --no-pager {words}")

    def explain(self):
        """Diagnostics of a failed scenario; the machine may not answer."""
        try:
            return self.shell("p2pctl status; p2pctl history; cat /proc/cmdline; systemctl --no-pager --no-legend list-units --all 'p2pd*';"
                              " journalctl --quiet --no-pager -n 40 -u 'p2pd*'", timeout_s=20).stdout
        except MachineError as error:
            return str(error)


class Scenarios:
    """Runs functions case_NAME(machine), and prints their results."""

    def __init__(self, root, work, only, with_p2pd=True):
        self.root, self.work, self.only = root, work, only
        try:
            self.layer = installed(root, BUILD, work) if with_p2pd else None
        except MachineError as error:
            raise SystemExit(f"FAIL install: {error}") from None
        self.failed = self.number = 0
        self.known = set()

    def machine(self, given=None, layers=None):
        self.number += 1
        return ServiceMachine(self.work, f"m{self.number}", layers or [self.layer, self.root], files() if given is None else given)

    def wanted(self, cases):
        self.known |= set(map(name_of, cases))
        return [case for case in cases if not self.only or name_of(case) in self.only]

    def exit_code(self):
        if unknown := set(self.only) - self.known:
            print(f"FAIL {min(unknown)}: there is no such case, but {', '.join(sorted(self.known))}", flush=True)
        return 1 if self.failed or unknown else 0

    def case(self, case, *given):
        """Runs one scenario; reports its error with the machine's diagnostics."""
        start = time.monotonic()
        try:
            case(*given)
        except (Unexpected, MachineError, OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
            self.failed += 1
            first, _, rest = (str(error) or repr(error)).partition("\n")
            rest += "".join("\n" + one.explain() for one in given if isinstance(one, ServiceMachine))
            print(f"FAIL {name_of(case)}: {first}" + "".join(f"\n    {line}" for line in rest.strip().splitlines()[-70:]), flush=True)
        else:
            print(f"ok {name_of(case)} ({time.monotonic() - start:.1f} s)", flush=True)

    def together(self, cases, given=None):
        """Runs scenarios that leave a machine as it was, on one machine."""
        if cases := self.wanted(cases):
            with self.machine(given) as machine:
                for case in cases:
                    self.case(case, machine)

    def apart(self, cases, given=None):
        """Runs scenarios on a machine of their own each; `given` for those without `files`."""
        for case in self.wanted(cases):
            with self.machine(getattr(case, "files", given)) as machine:
                self.case(case, machine)


def name_of(case):
    return case.__name__[len("case_"):].replace("_", "-")


def with_files(**given):
    """Marks a scenario whose machine gets these files(...)."""
    def decorate(case):
        case.files = files(**given)
        return case
    return decorate


def cases_of(functions, suffix=""):
    """The functions case_NAME of a script, in its order."""
    return [one for name, one in functions.items() if name.startswith("case_" + suffix)]
