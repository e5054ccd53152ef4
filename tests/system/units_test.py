#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""units_test.py ROOT [CASE]...: the shipped units, and p2pd on the bus, in a booted systemd. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import json
import os
import re
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
from machine import HERE  # noqa: E402
from namespaces import arguments  # noqa: E402
from service import ARGUMENT, MANAGER, Scenarios, cases_of, expect, files  # noqa: E402

SHIPPED = HERE.parents[1] / "units"
STANDARD = ("org.freedesktop.DBus.", "org.freedesktop.LogControl1")  # interfaces that come with libsystemd
WORST = 1.5  # highest exposure of p2pd.service in systemd-analyze: 0 is the best, 10 the worst
NOT_GREEN = {  # settings that systemd-analyze marks down in p2pd.service, and the reason for each
    "RootDirectory=/RootImage=": "it runs from the host's /usr, of which it cannot write anything",
    "RestrictSUIDSGID=": "answers openat2(2), which opens every path of p2pd, with ENOSYS; it has no privilege to pass on",
    "RestrictAddressFamilies=~AF_UNIX": "the bus and the worker are Unix sockets",
    "DeviceAllow=": "ProtectClock= itself adds char-rtc, for reading",
}
SOON = "[Timer]\nOnBootSec=\nOnBootSec=1s\nRandomizedDelaySec=0\n"


def shipped(machine, *endings):
    units = sorted(path.name for path in (machine.path / "usr/lib/systemd/system").glob("p2pd*"))
    return [unit for unit in units if unit.endswith(endings or ("",))]


# ---- idle -------------------------------------------------------------------------------------------------------------

def case_boot_idle(scenarios):
    """After the timers have fired there is no process of p2pd, and /etc is what a boot without p2pd leaves."""
    timers = [path.name for path in (scenarios.layer / "usr/lib/systemd/system").glob("p2pd*.timer")]
    soon = {f"/etc/systemd/system/{timer}.d/soon.conf": SOON for timer in timers}

    def written(layers):
        with scenarios.machine(dict(soon), layers) as machine:
            if layers is None:
                for timer in timers:
                    # a timer whose condition does not hold is not started; a started one has fired
                    machine.until(f"! systemctl -q is-active {timer} || systemctl show {timer} -p LastTriggerUSec | grep -q =[A-Z]",
                                  f"{timer} fired", 20)
                machine.until(lambda: not machine.processes(), "no process of p2pd is left", 60)
                expect(machine.run("systemctl list-units --failed --no-legend 'p2pd*'") == "", "a unit failed")
            return {str(path.relative_to(machine.upper)) for path in (machine.upper / "etc").rglob("*")}

    expect(timers, "no timer is shipped")
    without, with_it = written([scenarios.root]), written(None)
    expect(with_it == without, f"in /etc, more: {with_it - without}, less: {without - with_it}")
    belongs = re.compile(r"etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|etc/\.pwd\.lock|etc/p2pd(/.*)?|etc/systemd(/system(/.*)?)?|"
                         r"etc/needrestart(/conf\.d(/p2pd\.conf)?)?")
    others = [str(path.relative_to(scenarios.layer)) for path in (scenarios.layer / "etc").rglob("*")
              if not belongs.fullmatch(str(path.relative_to(scenarios.layer)))]
    expect(not others, f"the package changed {others}")


def case_apply_on_boot_is_off(machine):
    machine.reboot()
    expect("walk" not in machine.processes(), "the worker runs")
    expect(machine.status().get("run", 0) == 0, f"there is a run: {machine.status()}")


def case_each_boot_makes_anew_what_lasts_for_one(machine):
    """After a run, whatever it applied: the unit asks the worker."""
    machine.apply("toolkit")
    machine.ends("done")
    machine.reboot()
    told = machine.unit("p2pd-reassert.service", "ConditionResult", "Result", "ExecMainStatus", "ExecMainStartTimestampMonotonic")
    expect(told[:3] == ["yes", "success", "0"] and told[3] != "0", f"{told}")


# ---- shipped files ----------------------------------------------------------------------------------------------------

def case_verify(machine):
    units = shipped(machine)
    done = machine.shell(f"cd /usr/lib/systemd/system && systemd-analyze verify --man=no {' '.join(units)}")
    expect(done.returncode == 0 and not done.stdout.strip(), f"{done.returncode}: {done.stdout}")


def case_security(machine):
    told = machine.run("systemd-analyze security --offline=yes --no-pager /usr/lib/systemd/system/p2pd.service")
    score = float(re.search(r"exposure level for p2pd\.service: ([\d.]+)", told)[1])
    print(f"  exposure of p2pd.service: {score}; what is not green:")
    settings = [line.split()[1] for line in told.splitlines() if line.startswith(("✗", "-")) and "=" in line]
    for setting in settings:
        print(f"    {setting} {NOT_GREEN.get(setting)}")
    expect(set(settings) == set(NOT_GREEN), f"not green: {settings}")
    expect(score <= WORST, f"exposure {score}, more than {WORST}")


def normal(element):
    """An element as a tuple, without comments, white space and the order of attributes."""
    return element.tag, tuple(sorted(element.attrib.items())), tuple(normal(child) for child in element if isinstance(child.tag, str))


def interfaces(xml):
    """Name to content of an introspection, standard interfaces left out, members in any order."""
    found = {}
    for interface in ElementTree.fromstring(xml).iter("interface"):
        if not interface.get("name").startswith(STANDARD):
            found[interface.get("name")] = sorted(normal(interface)[2])
    return found


def case_introspection(machine):
    told = machine.run("busctl call org.p2pd1 /org/p2pd1 org.freedesktop.DBus.Introspectable Introspect --json=short")
    live = interfaces(json.loads(told)["data"][0])
    for path in (SHIPPED / "org.p2pd1.xml", machine.path / "usr/share/dbus-1/interfaces/org.p2pd1.xml"):
        wanted = interfaces(path.read_text())
        expect(live.keys() == wanted.keys(), f"{path.name}: interfaces are {set(live)}")
        for name, members in wanted.items():
            more, less = [one for one in live[name] if one not in members], [one for one in members if one not in live[name]]
            expect(not more and not less, f"{path.name}: {name}: live has also {more}; it lacks {less}")


# ---- the bus ----------------------------------------------------------------------------------------------------------

def case_bus_activation(machine):
    machine.run("systemctl stop p2pd.service")
    expect(machine.pid("p2pd.service") == 0, "it was not stopped")
    machine.run("p2pctl history")
    machine.run(f"busctl get-property {MANAGER} State")
    expect(machine.pid("p2pd.service") != 0, "it was not started")
    expect(machine.unit("p2pd.service", "User", "Type") == ["p2pd", "notify"], f"{machine.unit('p2pd.service', 'User', 'Type')}")
    expect(machine.run(f"stat -c %U /proc/{machine.pid('p2pd.service')}") == "p2pd", "it does not run as p2pd")


def case_smoke(machine):
    """Runs the autopkgtest, packaging/debian/tests/smoke; the machine has the files of the package, but no entry of dpkg."""
    smoke = (HERE.parents[1] / "packaging/debian/tests/smoke").read_text()
    machine.write("/root/smoke", 'dpkg-query() { p2pctl --version | cut -d " " -f 2; }\n' + smoke)
    machine.run("AUTOPKGTEST_TMP=$(mktemp -d) bash /root/smoke")  # which takes a function of that name


def case_ends_when_idle(machine):
    drop_in(machine, "p2pd.service", "Environment=P2PD_IDLE_S=1")
    machine.run("systemctl restart p2pd.service")
    machine.until("! systemctl -q is-active p2pd.service", "p2pd ended by itself", 15)
    expect(machine.unit("p2pd.service", "Result")[0] == "success", "it did not end well")
    machine.run("p2pctl history")
    no_drop_in(machine, "p2pd.service")


def case_stays_while_it_is_asked(machine):
    machine.run("p2pctl history")
    before, until = machine.pid("p2pd.service"), time.monotonic() + 4
    while time.monotonic() < until:
        machine.run(f"busctl get-property {MANAGER} State")
        expect(machine.pid("p2pd.service") == before, "it ended between two calls")


def case_bus_restarts(machine):
    machine.run("p2pctl history")
    machine.run("systemctl restart dbus.service")
    machine.until("p2pctl history", "p2pd answers on the new bus", 30)
    machine.until(f"busctl get-property {MANAGER} State", "p2pd has its name on the new bus", 30)


def case_watchdog(machine):
    drop_in(machine, "p2pd.service", "WatchdogSec=2")
    machine.run("systemctl restart p2pd.service")
    before = machine.pid("p2pd.service")
    os.kill(machine.seen(before), signal.SIGSTOP)
    machine.until(lambda: machine.pid("p2pd.service") not in (0, before), "systemd has put another p2pd in its place", 30)
    expect("watchdog" in machine.journal("-b -t systemd -u p2pd.service").lower(), "not by the watchdog")
    machine.run("p2pctl history")
    no_drop_in(machine, "p2pd.service")


def case_logs(machine):
    machine.run("p2pctl history")
    expect("p2pd" in machine.run("p2pctl logs -n 20"), "p2pctl logs shows nothing of p2pd")


def case_another_machine(machine):
    """-H, with a stand-in for ssh that comes back to this machine."""
    machine.write("/usr/local/bin/ssh", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec "$@"\n')
    machine.run("chmod 755 /usr/local/bin/ssh")
    here, there = (machine.shell(f"p2pctl {words} --json").stdout for words in ("status", "-H admin@box status"))
    expect(json.loads(here) == json.loads(there), f"{there} is not {here}")
    expect(machine.shell("p2pctl is-ready -H box").returncode == 3, "is-ready")
    machine.run("rm /usr/local/bin/ssh")


def case_a_full_disk(machine):
    """Without room for its state p2pd changes nothing; the error says why, and with room again it works."""
    machine.run("systemctl stop p2pd.service p2pd-worker.service; mount -t tmpfs -o size=64k tmpfs /var/lib/p2pd")
    done = machine.shell("p2pctl apply --yes toolkit --no-block")
    expect(done.returncode == 1 and "space" in done.stdout, f"{done.returncode}: {done.stdout}")
    expect("cuda" not in machine.shell("dpkg -l | grep cuda").stdout, "something was installed")
    machine.run("systemctl stop p2pd.service p2pd-worker.service; umount /var/lib/p2pd; p2pctl history")


def case_no_journal(machine):
    """p2pd and p2pctl work while journald is stopped."""
    machine.run("systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald.service")
    machine.run("systemctl restart p2pd.service && p2pctl history")
    machine.run("systemctl start systemd-journald.socket systemd-journald.service")


def case_log_level(machine):
    machine.run("p2pctl history")
    before = machine.run("systemctl service-log-level p2pd.service")
    machine.run("systemctl service-log-level p2pd.service debug")
    expect(machine.run("systemctl service-log-level p2pd.service") == "debug", "it did not stay")
    machine.run(f"systemctl service-log-level p2pd.service {before}")
    expect(before == "info", f"it was {before}")


def case_ready_target(machine):
    expect(machine.shell("p2pctl is-ready").returncode == 3, "p2pctl says ready")
    expect(machine.shell("systemctl start p2pd-ready.target").returncode != 0, "the target was started")
    expect(machine.shell("systemctl -q is-active p2pd-ready.target").returncode != 0, "the target is active")
    machine.run("mkdir -p /run/p2pd && touch /run/p2pd/ready && systemctl start p2pd-ready.target && systemctl stop p2pd-ready.target")
    machine.run("rm /run/p2pd/ready")


def case_metrics(machine):
    """A file for node_exporter exists; it is rewritten when the status changes."""
    folder = "/var/lib/prometheus/node-exporter"
    for unit in ("p2pd-metrics.path", "p2pd-metrics.timer"):
        machine.run(f"systemctl start {unit}")
        expect(machine.shell(f"systemctl -q is-active {unit}").returncode != 0, f"{unit} is active, and nobody reads")
    machine.run(f"mkdir -p {folder} && systemctl start p2pd-metrics.path p2pd-metrics.timer")
    for unit in ("p2pd-metrics.path", "p2pd-metrics.timer"):
        machine.run(f"systemctl -q is-active {unit}")
    machine.until(f"grep -q '^p2pd_ready 0$' {folder}/p2pd.prom", "the file is there", 30)
    machine.run(f"rm {folder}/p2pd.prom && touch /run/p2pd/status.json")
    machine.until(f"test -s {folder}/p2pd.prom", "it is written anew", 30)
    expect(machine.run(f"ls -A {folder}") == "p2pd.prom", "more than the file is left there")
    expect(machine.run("systemctl show -P Result p2pd-metrics.service") == "success", "the service failed")
    machine.run(f"systemctl stop p2pd-metrics.path p2pd-metrics.timer p2pd-metrics.service && rm -r {folder}")


def case_features(machine):
    """Labels for Kubernetes exist, with an expiry time."""
    folder = "/etc/kubernetes/node-feature-discovery/features.d"
    machine.run("systemctl start p2pd-features.timer")
    expect(machine.shell("systemctl -q is-active p2pd-features.timer").returncode != 0, "it labels, and nobody reads")
    machine.run(f"mkdir -p {folder} && systemctl start p2pd-features.timer && systemctl -q is-active p2pd-features.timer")
    machine.until(f"grep -qx feature.node.kubernetes.io/p2pd.ready=false {folder}/p2pd", "the file is there", 30)
    machine.run(f"grep -q '^# +expiry-time=' {folder}/p2pd")
    expect(machine.run(f"ls -A {folder}") == "p2pd", "more than the file is left there")
    expect(machine.run("systemctl show -P Result p2pd-features.service") == "success", "the service failed")
    machine.run("systemctl stop p2pd-features.timer p2pd-features.service && rm -r /etc/kubernetes")


# ---- the package ------------------------------------------------------------------------------------------------------

def case_removal_with_an_open_run(machine):
    """It is refused while changes are left, and the worker is there again; a run that has changed nothing is cancelled."""
    before = (run := machine.apply("external")) and machine.state("rebooting")["state"]
    done = maintainer(machine, "prerm remove")
    expect(done.returncode == 1 and '"sudo p2pctl revert" does that' in done.stdout, f"{done.returncode}: {done.stdout}")
    machine.run("systemctl -q is-active p2pd-worker.socket")
    expect((now := machine.status())["run"] == run and now["state"] == before, f"{now}")
    expect(maintainer(machine, "prerm upgrade 0.2.0").returncode == 0 and machine.status()["state"] == before, "an upgrade ended the run")
    machine.run("p2pctl cancel --yes")
    machine.ends("cancelled", run)

    run = machine.apply("stuck")
    machine.state("blocked")
    done = maintainer(machine, "prerm remove")
    expect(done.returncode == 0 and "cancels its open run" in done.stdout, f"{done.returncode}: {done.stdout}")
    expect(machine.shell("systemctl is-active p2pd-worker.socket p2pd-worker.service").stdout.split() == ["inactive"] * 2, "it still runs")
    last = json.loads(machine.run("p2pctl history --no-dbus --json"))["runs"][0]
    expect((last["id"], last["result"]) == (run, "cancelled"), f"{last}")
    machine.run("systemctl start p2pd-worker.socket")


def case_an_open_run_is_not_continued_after_a_new_installation(machine):
    run = machine.apply("external")
    machine.state("rebooting")
    expect(maintainer(machine, "preinst install 0.2.0").returncode == 0, "preinst failed")
    machine.reboot()
    machine.until(lambda: machine.status()["state"] == "failed", "the run has ended", 30)
    now = machine.status()
    expect(now["run"] == run and "installed again" in now["reason"] and now["stays"], f"{now}")
    expect(ARGUMENT not in machine.read("/boot/grub/grub.cfg"), "the run went on")


# ---- helpers ----------------------------------------------------------------------------------------------------------

def maintainer(machine, words):
    """Runs a script of the package as dpkg does."""
    script = words.split()[0]
    machine.write(f"/root/{script}", (HERE.parents[1] / f"packaging/debian/p2pd.{script}").read_text())
    return machine.shell(f"sh /root/{words}", timeout_s=120)


def drop_in(machine, unit, line):
    folder = f"/run/systemd/system/{unit}.d"
    machine.run(f"mkdir -p {folder} && printf '[Service]\\n{line}\\n' > {folder}/test.conf && systemctl daemon-reload")


def no_drop_in(machine, unit):
    machine.run(f"rm -r /run/systemd/system/{unit}.d && systemctl daemon-reload && systemctl stop {unit}")


def main():
    root, work, only = arguments()
    scenarios = Scenarios(root, work, only)
    if scenarios.wanted([case_boot_idle]):
        scenarios.case(case_boot_idle, scenarios)
    package = [case_removal_with_an_open_run, case_an_open_run_is_not_continued_after_a_new_installation]
    alone = [case_boot_idle, case_apply_on_boot_is_off, case_each_boot_makes_anew_what_lasts_for_one, *package]
    scenarios.together([case for case in cases_of(globals()) if case not in alone])
    scenarios.apart([case_apply_on_boot_is_off], files(config="plan: toolkit"))
    scenarios.apart([case_each_boot_makes_anew_what_lasts_for_one], files(seconds=0))
    scenarios.apart(package)
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
