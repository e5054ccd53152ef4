#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""callers_test.py ROOT [CASE]...: access rights, in a booted systemd: every user reads, only root writes, and p2pd itself
can change nothing. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import difflib
import re
import sys

sys.dont_write_bytecode = True
import namespaces  # noqa: E402
from service import MANAGER, WRITES, Scenarios, cases_of, expect, files  # noqa: E402

REFUSED = ("Access denied", "nteractive authentication required", "ermission denied", "password is needed", "polkit does not allow",
           "only root may")
# sockets that p2pd may connect to: the bus, the worker, the journal, systemd's notify socket; and user lookup, open to all
OPEN_TO_P2PD = {"/run/dbus/system_bus_socket", "/run/p2pd/walk.sock", "/run/systemd/notify", "/run/systemd/journal/dev-log",
                "/run/systemd/journal/socket", "/run/systemd/journal/stdout", "/run/systemd/userdb/io.systemd.DynamicUser",
                "/run/systemd/io.system.ManagedOOM"}
SYSTEMD = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
HOSTNAMED = "org.freedesktop.hostname1 /org/freedesktop/hostname1 org.freedesktop.hostname1"
CHANGES = {  # changes that p2pd must not be able to make over the bus
    "a transient unit": f"{SYSTEMD} StartTransientUnit 'ssa(sv)a(sa(sv))' made.service fail"
                        " 1 ExecStart 'a(sasb)' 1 /bin/touch 2 touch /etc/touched false 0",
    "a unit started": f"{SYSTEMD} StartUnit ss p2pd-worker.service replace",
    "a unit stopped": f"{SYSTEMD} StopUnit ss systemd-journald.service replace",
    "a unit killed": f"{SYSTEMD} KillUnit ssi dbus.service all 9",
    "a unit linked": f"{SYSTEMD} LinkUnitFiles asbb 1 /tmp/made.service true true",
    "a reload": f"{SYSTEMD} Reload",
    "the environment": f"{SYSTEMD} SetEnvironment as 1 LD_PRELOAD=/tmp/made.so",
    "a reboot": f"{LOGIND} Reboot b false",
    "a scheduled reboot": f"{LOGIND} ScheduleShutdown st reboot 99999999999999999",
    "an inhibitor": f"{LOGIND} Inhibit ssss shutdown made made block",
    "the host's name": f"{HOSTNAMED} SetHostname sb made false",
}


def refused(machine, command, user):
    """Checks that a command fails because of its caller."""
    done = machine.shell(command, user, 30)
    expect(done.returncode != 0, f"{user} may: {command}\n{done.stdout}")
    expect(any(word in done.stdout for word in REFUSED), f"{user} is refused for another reason: {command}\n{done.stdout}")


def written(machine):
    """State that a write would have changed."""
    return machine.run("p2pctl history --json; ls -lR --full-time /etc /boot | sort; systemctl list-jobs --no-legend;"
                       " cat /run/systemd/shutdown/scheduled 2>/dev/null || true")


# ---- nobody -----------------------------------------------------------------------------------------------------------

def case_nobody_reads(machine):
    run = machine.apply("toolkit")
    machine.ends("done")
    for command in ("p2pctl history --json", f"busctl call {MANAGER} GetHistory u 10"):
        told = machine.run(command, "nobody").replace("\\", "")
        expect(re.search(rf'"id": *{run}\b', told), f"{command} does not know run {run}: {told[:600]}")
    for command in ("p2pctl status || [ $? = 4 ]", "p2pctl status --json || [ $? = 4 ]", "p2pctl history", "busctl introspect org.p2pd1 /org/p2pd1",
                    f"busctl get-property {MANAGER} Version State Reason Next PlanName RunId Step Progress RebootRequired Reboots Gpus",
                    f"busctl call {MANAGER} ListSteps", f"busctl call {MANAGER} GetReport",
                    "cat /run/p2pd/status.json"):
        machine.run(command, "nobody")
    expect(machine.shell("p2pctl is-ready", "nobody").returncode == 3, "is-ready does not answer 3")


def case_nobody_writes(machine):
    before = written(machine)
    for command in ("apply --yes toolkit", "apply --yes argument --no-block", "pause", "resume", "retry", "cancel --yes", "revert --yes"):
        refused(machine, f"p2pctl {command}", "nobody")
    refused(machine, f"busctl call {MANAGER} Apply 'sa{{sv}}' toolkit 0", "nobody")
    refused(machine, f"busctl call {MANAGER} Apply 'sa{{sv}}' toolkit 1 reboot b false", "nobody")
    for method in WRITES:
        refused(machine, f"busctl call {MANAGER} {method}", "nobody")
    after = written(machine)
    expect(after == before, "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), n=0)))
    expect(machine.state("idle")["result"] == "done", "the last run is not as it was")


def case_nobody_at_the_workers_door(machine):
    machine.run("test -S /run/p2pd/walk.sock")
    for command in ("python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('/run/p2pd/walk.sock')\"",
                    "touch /var/lib/p2pd/made", "touch /run/p2pd/ready", "echo > /run/p2pd/status.json"):
        refused(machine, command, "nobody")


def case_without_polkit_only_root(machine):
    machine.run("systemctl mask --runtime --now polkit.service")
    refused(machine, f"busctl call {MANAGER} Revert", "nobody")
    machine.run("p2pctl history", "nobody")
    machine.apply("toolkit")
    machine.ends("done")
    expect("polkit" in machine.journal("-b -u p2pd.service"), "the log does not say that polkit is not there")
    machine.run("systemctl unmask --runtime polkit.service")


# ---- p2pd -------------------------------------------------------------------------------------------------------------

def p2pd_of(machine):
    """Process id of p2pd in this namespace."""
    machine.run("p2pctl history")  # starts p2pd
    return machine.seen(machine.until(lambda: machine.pid("p2pd.service"), "p2pd runs", 5))


def case_p2pd_writes_nothing(machine):
    """p2pd can write only to its private /tmp, which nobody else sees."""
    pid = p2pd_of(machine)
    found = namespaces.inside(pid, namespaces.writable)
    seen = [path for path in found if machine.shell(f"test -e '{path}' && [ ! '{path}' -ef /dev/null ]").returncode == 0]
    print(f"  p2pd can write {', '.join(found) or 'nowhere'}")
    expect(not seen, f"p2pd can write {', '.join(seen)}")
    kernel = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
              "/sys/power/state", "/sys/bus/pci/rescan", "/sys/fs/cgroup/cgroup.procs", "/dev/console", "/dev/kmsg", "/dev/mem"]
    opened = namespaces.inside(pid, lambda: namespaces.opened_for_writing(kernel))
    expect(not opened, f"p2pd can write {opened}")


def case_p2pd_connects_to_little(machine):
    pid = p2pd_of(machine)
    machine.run("systemctl start p2pd-worker.socket")
    sockets = namespaces.sockets_of(machine.leader)
    expect("/run/systemd/private" in dict(sockets), f"no /run/systemd/private in {sockets}")
    found = set(namespaces.inside(pid, lambda: namespaces.connectable(sockets)))
    print(f"  p2pd can connect to {', '.join(sorted(found))}, of {len(sockets)} sockets")
    expect("/run/dbus/system_bus_socket" in found, "not even to the bus: the test tests nothing")
    expect(found <= OPEN_TO_P2PD, f"also to {found - OPEN_TO_P2PD}")


def case_p2pd_signals_nobody(machine):
    pid = p2pd_of(machine)
    others = [int(one) for one in machine.run("pgrep -v -u p2pd .").split()]
    found = namespaces.inside(pid, lambda: namespaces.signalled(others))
    expect(1 in others and not found, f"it can signal {found}")


def case_p2pd_is_nobody_on_the_bus(machine):
    for what, call in CHANGES.items():
        done = machine.shell(f"busctl call {call}", "p2pd", 30)
        expect(done.returncode != 0, f"p2pd gets {what}: {done.stdout}")
        expect(any(word in done.stdout for word in REFUSED), f"{what}: refused for another reason: {done.stdout}")
    machine.run("test ! -e /etc/touched && systemctl is-active dbus.service systemd-journald.service")


def case_p2pd_has_no_privilege(machine):
    p2pd_of(machine)
    status = machine.run(f"cat /proc/{machine.pid('p2pd.service')}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        expect(int(fields[name], 16) == 0, f"{name} is {fields[name]}")
    expect(fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", f"NoNewPrivs {fields['NoNewPrivs']}, Seccomp {fields['Seccomp']}")
    uid = machine.run("id -u p2pd")
    expect(fields["Uid"].split() == [uid] * 4 and uid != "0", f"it runs as {fields['Uid']}")


def main():
    root, work, only = namespaces.arguments()
    scenarios = Scenarios(root, work, only)
    alone = [case_without_polkit_only_root]
    scenarios.together([case for case in cases_of(globals()) if case not in alone], files(seconds=0))
    scenarios.apart(alone, files(seconds=0))
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
