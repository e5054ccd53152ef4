#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""reboots_test.py ROOT [CASE]...: runs that need a restart, through logind, in a booted systemd. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import json
import sys
import time

sys.dont_write_bytecode = True
from namespaces import arguments  # noqa: E402
from service import ARGUMENT, Scenarios, cases_of, expect, with_files  # noqa: E402

DELAY_S = 12  # of a restart that must be announced
LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
REBOOTING = "7a1c3e5f9b2d4068a4c6e8f0b2d4f617"


def scheduled(machine):
    """Kind of shutdown that logind has scheduled; '' if none."""
    return machine.run(f"busctl get-property {LOGIND} ScheduledShutdown").split()[1].strip('"')


def has_argument(machine, boot=-1):
    return ARGUMENT in machine.boots[boot].split()


def ends_well(machine, run, boots, counted=None):
    """Checks that the run is done after so many boots, and its argument is permanent. `counted`: its reboots, if more."""
    status = machine.ends("done", run)
    expect(len(machine.boots) == boots, f"{len(machine.boots)} boots: {machine.boots}")
    expect(boots - 1 <= status["reboots"] <= (counted or boots - 1), f"{status['reboots']} reboots counted")
    expect(has_argument(machine) and ARGUMENT in machine.run("cat /proc/cmdline"), "the kernel has no such argument")
    expect(ARGUMENT in machine.read("/boot/grub/grub.cfg"), "grub.cfg has no such argument")
    return status


def in_the_kernels_hands(machine, seconds):
    """Checks that nothing is restarted for so long."""
    boots, until = len(machine.boots), time.monotonic() + seconds
    while time.monotonic() < until:
        expect(len(machine.boots) == boots and machine.leader, "it was restarted")
        time.sleep(0.2)


# ---- by itself --------------------------------------------------------------------------------------------------------

def case_a_reboot_on_the_way(machine):
    run = machine.apply("argument")
    ends_well(machine, run, 2)
    expect("p2pd.trial=1" in machine.boots[1], f"no trial boot: {machine.boots}")
    machine.reboot()
    machine.until(lambda: not machine.processes(), "no process of p2pd is left", 60)
    expect(has_argument(machine) and "p2pd.trial=1" not in machine.boots[2], f"the boot after it: {machine.boots}")
    expect(machine.status()["run"] == run, "there is another run")
    expect("P2PD_RUN=" in machine.journal(f"-o verbose MESSAGE_ID={REBOOTING}"), "no message of the reboot")
    machine.run("p2pctl revert --yes --no-block")
    machine.ends("reverted")
    expect(len(machine.boots) == 4 and machine.boots[3] == machine.boots[0], f"after the rollback: {machine.boots}")


def case_apply_follows_until_it_reboots(machine):
    """p2pctl apply, typed by a person, reports progress, and exits 0 as the machine shuts down."""
    done = machine.shell("p2pctl apply --yes argument; echo ended $? > /var/log/apply")
    machine.ends("done")
    expect("argument" in done.stdout, f"it said {done.stdout!r}")
    ended = machine.shell("cat /var/log/apply 2>/dev/null").stdout.strip()  # the machine may have been faster
    expect(ended in ("ended 0", ""), ended)


@with_files(more={"/etc/systemd/system/hold.service": "[Unit]\nConditionPathExists=/etc/hold\n[Service]\nType=exec\n"
                                                     "ExecStart=/usr/bin/flock /var/lib/p2pd/lock sleep 45\n[Install]\nWantedBy=basic.target\n"})
def case_what_is_in_the_way_at_boot_passes(machine):
    """A lock that is held longer than the worker waits for it: it tries again, and the run ends by itself."""
    machine.run("systemctl -q enable hold.service && touch /etc/hold")
    run = machine.apply("argument")
    machine.until(lambda: len(machine.boots) == 2, "it was restarted", 60)
    machine.until(lambda: "another process holds the state" in json.dumps(machine.published().get("error", {})), "the error names who holds the lock", 60)
    ends_well(machine, run, 2)
    expect("error" not in machine.published(), "the error is still told")


@with_files(config="plan: argument\napply_on_boot: true\nreboot_delay_s: 0",
            more={"/etc/systemd/system/var-lib-p2pd.mount": "[Mount]\nWhat=tmpfs\nWhere=/var/lib/p2pd\nType=tmpfs\n",
                  "/etc/systemd/system/local-fs.target.d/state.conf": "[Unit]\nRequires=var-lib-p2pd.mount\nAfter=var-lib-p2pd.mount\n"})
def case_apply_on_boot_is_refused_where_counts_are_lost(machine):
    machine.until(lambda: machine.published().get("error"), "the worker says why", 60)
    error = machine.published()["error"]
    expect("tmpfs" in error["message"] and "/var/lib/p2pd" in error["next"], f"{error}")
    in_the_kernels_hands(machine, 5)
    expect(machine.published()["run"] == 0 and not has_argument(machine), f"{machine.published()}")


@with_files(config="plan: argument\napply_on_boot: true\nreboot_delay_s: 0")
def case_apply_on_boot(machine):
    """The first boot begins a run, which ends after its reboot; later boots begin none."""
    machine.until(lambda: machine.status().get("run"), "a run began", 30)
    status = ends_well(machine, None, 2)
    machine.reboot()
    machine.until(lambda: not machine.processes(), "no process of p2pd is left", 60)
    expect(machine.status()["run"] == status["run"], "there is another run")


def case_apply_in_cloud_init(machine):
    """A command of cloud-init's that waited for a run, which waits for cloud-init, would never end."""
    by_cloud_init = "systemd-run --quiet --collect --wait --pipe --unit=cloud-final p2pctl apply --yes argument"
    for options in ("", "--no-dbus --no-block"):
        done = machine.shell(f"{by_cloud_init} {options} 2>&1")
        expect(done.returncode == 1 and "p2pctl apply --yes --no-block" in done.stdout, f"{options} {done.returncode}: {done.stdout}")
    expect(machine.status()["state"] == "idle", "it began a run")
    machine.run(f"{by_cloud_init} --no-block")
    machine.ends("done")


# ---- announced and cancelled --------------------------------------------------------------------------------------------

@with_files(config=f"reboot_delay_s: {DELAY_S}")
def case_announced_and_called_off(machine):
    """A terminal and motd announce the restart and how to stop it; shutdown -c pauses the run, which can be resumed."""
    with machine.beside("script --quiet --flush --command 'login -f root' /tmp/terminal"):
        machine.until("who | grep -q root", "somebody is logged in", 15)
        run = machine.apply("argument")
        machine.until(lambda: scheduled(machine) == "reboot", "logind has a reboot to do", 30)
        machine.until("grep -qi p2p /tmp/terminal", "the terminal tells of it", 10)
        told, motd = machine.run("cat /tmp/terminal"), machine.run("cat /run/motd.d/p2pd")
        print("  " + told[told.lower().find("broadcast"):].strip().replace("\n", "\n  ")[:600])
        for name, text in (("terminal", told), ("motd", motd), ("console", machine.console())):
            expect("p2pctl pause" in text or "shutdown -c" in text, f"{name} does not say how to stop it: {text[-600:]}")
        machine.run("shutdown -c")
        status = machine.state("paused", timeout_s=20)
        expect(status["run"] == run, "another run is paused")
        machine.until("! test -e /run/motd.d/p2pd", "motd is cleared", 10)
        in_the_kernels_hands(machine, DELAY_S + 2)
    machine.run("p2pctl resume --no-block")
    machine.until(lambda: len(machine.boots) == 2, "it was restarted", DELAY_S + 20)
    ends_well(machine, run, 2)


def paused(machine):
    """A run that p2pctl paused while its restart was due."""
    run = machine.apply("argument")
    machine.until(lambda: scheduled(machine) == "reboot", "logind has a reboot to do", 30)
    machine.run("p2pctl pause")
    status = machine.state("paused", timeout_s=20)
    expect("goes on at the next boot" in status["reason"], f"it does not say what a boot does: {status['reason']}")
    expect(scheduled(machine) == "", "logind still has a reboot to do")
    in_the_kernels_hands(machine, DELAY_S + 2)
    return run


@with_files(config=f"reboot_delay_s: {DELAY_S}")
def case_paused_by_p2pctl(machine):
    """A boot continues it: its changes are on trial, and would be undone by the boot after that."""
    run = paused(machine)
    machine.reboot()
    ends_well(machine, run, 2)


@with_files(config=f"reboot_delay_s: {DELAY_S}")
def case_cancelled_while_paused(machine):
    paused(machine)
    machine.run("p2pctl cancel --yes --no-block")
    machine.ends("cancelled")
    expect(ARGUMENT not in machine.read("/boot/grub/grub.cfg") and not (machine.path / "boot/grub/custom.cfg").exists(), "something is left")


@with_files(config=f"reboot_delay_s: {DELAY_S}")
def case_the_worker_is_killed_while_a_restart_is_due(machine):
    """The machine is restarted all the same, once."""
    run = machine.apply("argument")
    machine.until(lambda: scheduled(machine) == "reboot", "logind has a reboot to do", 30)
    machine.run("systemctl kill --signal=KILL p2pd-worker.service")
    ends_well(machine, run, 2, counted=2)


# ---- left to others ---------------------------------------------------------------------------------------------------

def case_external(machine):
    run = machine.apply("external")
    machine.until("test -e /run/reboot-required", "a reboot is asked for", 30)
    expect("p2pd" in machine.run("cat /run/reboot-required.pkgs").split(), "not in p2pd's name")
    status = machine.status()
    expect(status["state"] == "rebooting" and status["reboot_required"], f"{status['state']}, reboot required: {status['reboot_required']}")
    expect(scheduled(machine) == "", "logind has a reboot to do")
    in_the_kernels_hands(machine, 5)
    machine.reboot()
    ends_well(machine, run, 2)
    expect(not machine.status()["reboot_required"], "a reboot is still asked for")


def case_inhibited_from_the_start(machine):
    """Nothing is changed while an inhibitor is held; then the run continues by itself."""
    with machine.beside("systemd-inhibit --what=shutdown --mode=block --who=the-test --why=measuring sleep 1000"):
        machine.until("systemd-inhibit --list | grep -q the-test", "the inhibitor is there", 10)
        run = machine.apply("patient")
        machine.until("p2pctl status | grep -q the-test", "the status says who is waited for", 30)
        in_the_kernels_hands(machine, 5)
        expect(not (machine.path / "boot/grub/custom.cfg").exists(), "the trial entry is there already")
    ends_well(machine, run, 2)
    machine.run("p2pctl revert --yes --no-block")  # the rollback does not wait for p2pd's own lock
    machine.ends("reverted")


@with_files(seconds=3)
def case_inhibited_as_the_restart_is_due(machine):
    run = machine.apply("patient-late")
    machine.apt_works()
    with machine.beside("systemd-inhibit --what=shutdown --mode=block --who=the-test --why=measuring sleep 1000"):
        machine.until("p2pctl status | grep -q the-test", "the status says who is waited for", 40)
        in_the_kernels_hands(machine, 4)
    ends_well(machine, run, 2)


def case_its_own_inhibitor(machine):
    """While p2pd changes something, its inhibitor prevents a restart by mistake."""
    machine.write("/etc/slow-postinst", "3\n")
    machine.apply("toolkit")
    machine.apt_works()
    held = machine.run("systemd-inhibit --list --no-pager --no-legend")
    expect("p2pd" in held and "shutdown" in held, f"no inhibitor of p2pd in: {held}")
    machine.ends("done")
    machine.until("! systemd-inhibit --list --no-legend | grep -q p2pd", "its inhibitor is gone", 15)


# ---- power cut ----------------------------------------------------------------------------------------------------------

@with_files(seconds=3)
def case_the_plug_is_pulled(machine):
    """Power cuts while apt runs, and while a restart is due: the next boots continue the run."""
    run = machine.apply("both")
    machine.apt_works()
    machine.cut()
    machine.start()
    status = machine.ends("done", run)
    expect(machine.run("dpkg --audit") == "", "dpkg is not sound")
    expect(has_argument(machine), f"the kernel has no such argument: {machine.boots}")
    expect(status["reboots"] == 2, f"{status['reboots']} reboots counted: a crash is one")


def main():
    root, work, only = arguments()
    scenarios = Scenarios(root, work, only)
    scenarios.apart(cases_of(globals()))
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
