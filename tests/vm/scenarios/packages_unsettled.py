# SPDX-License-Identifier: MIT
"""p2pd waits for an installation in progress. That ends half-way: the run is blocked. Nothing is changed meanwhile."""
import time

from expected import expect_driver_kept
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"
LOCK = """systemd-run --unit=upgrade perl -MFcntl -e 'open(my $lock, "+>>", "/var/lib/dpkg/lock-frontend") or die;
my $whole = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0); fcntl($lock, F_SETLK, $whole) or die; sleep 600'"""


def run(machine):
    with expect_driver_kept(machine):
        machine.run("sed -i '/^Package: hostname$/,/^$/ s/^Status: .*/Status: install ok half-configured/' /var/lib/dpkg/status")
        machine.run(LOCK)
        machine.run("p2pctl apply --yes --no-block")
        machine.wait_logged("holds /var/lib/dpkg/lock-frontend", "it does not wait for the installation")
        time.sleep(30)
        status = machine.status()
        expect(status["state"] == "walking", str(status)[:400])
        machine.run("systemctl stop upgrade")
        status = machine.settle("blocked")
        expect("hostname" in status["reason"], status["reason"])
        machine.run("dpkg --configure -a")
