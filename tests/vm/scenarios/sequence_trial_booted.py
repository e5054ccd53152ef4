# SPDX-License-Identifier: MIT
"""In the trial boot the disk becomes one of another machine, the power is cut, and dpkg's lock is held past the proof: it becomes ready."""
from expected import expect_ready
from scenario import ATTENDED, expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = ATTENDED
HELD_S = 300  # p2pd waits two minutes for the lock
# holds dpkg's lock from the start of each boot until HELD_S later
HOLDER = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=p2pd-worker.service

[Service]
ExecStart=/usr/bin/perl -e 'use Fcntl; open(my $l, "+>>", "/var/lib/dpkg/lock-frontend") or die; fcntl($l, F_SETLK, pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0)) or die; sleep {held}'

[Install]
WantedBy=sysinit.target
"""


def run(machine):
    first = machine.first_view()
    machine.arm()
    boot = machine.restart()
    expect(machine.is_trial(), "the armed entry was not booted")
    machine.run("rm /etc/machine-id && systemd-machine-id-setup")
    machine.run(f"cat > /etc/systemd/system/holder.service <<'END'\n{HOLDER.replace('{held}', str(HELD_S))}END\nsystemctl enable holder.service && sync")
    machine.cut_power()
    machine.wait_boot(after=boot)
    machine.wait_until(lambda: machine.status()["state"] != "walking" or "lock" in str(machine.status()), "nothing waits for the lock")
    status = machine.status()
    expect(status["state"] not in ("reverting", "failed"), f"undone for want of a lock: {status['reason']}")
    expect_ready(machine, machine.settle("ready"))
    machine.run("systemctl disable --now holder.service && rm /etc/systemd/system/holder.service && systemctl daemon-reload")
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    expect(machine.look("reverted").cmdline == first.cmdline, "the command line is not the first one")
