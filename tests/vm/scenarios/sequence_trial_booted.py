# SPDX-License-Identifier: MIT
"""In the trial boot the disk becomes one of another machine, the power is cut, and dpkg's lock is held past the proof: it becomes ready."""
from expected import expect_ready
from scenario import ATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
HOLD = """#!/usr/bin/perl
use Fcntl;
open(my $lock, "+>>", "/var/lib/dpkg/lock-frontend") or die;
my $whole = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($lock, F_SETLK, $whole) or die;
sleep 300;  # p2pd waits two minutes for a lock
"""
UNIT = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=p2pd-worker.service

[Service]
ExecStart=/usr/local/sbin/hold

[Install]
WantedBy=sysinit.target
"""
SEED = ATTENDED | {"/usr/local/sbin/hold": (0o755, HOLD), "/etc/systemd/system/hold.service": UNIT}


def run(machine):
    first = machine.first_view()
    machine.arm()
    boot = machine.restart()
    expect(machine.is_trial(), "the armed entry was not booted")
    machine.run("rm /etc/machine-id && systemd-machine-id-setup && systemctl daemon-reload && systemctl enable hold.service && sync")
    machine.cut_power()
    machine.wait_boot(after=boot)
    expect(machine.run("systemctl is-active hold.service") == "active", "nothing holds the lock")
    expect_ready(machine, machine.settle("ready"))
    machine.run("systemctl disable hold.service")
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect(machine.look("reverted").cmdline == first.cmdline, "the command line is not the first one")
    expect(machine.run("cat /sys/module/nvidia/version") == "570.123.11", "the old driver is not loaded")
