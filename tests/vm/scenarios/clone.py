# SPDX-License-Identifier: MIT
"""The disk of a ready machine in another one: not ready before P2P is proven there."""
from scenario import expect

STARTS = "first-boot"
CARDS = "two-ports"


def run(machine):
    before = machine.run("cat /etc/machine-id")
    machine.run("systemctl stop p2pd-prove.timer p2pd-worker.timer; rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup; sync")
    boot = machine.wait_boot()
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    expect(machine.run("cat /etc/machine-id") != before, "it has the same id")
    machine.run("systemctl start --wait p2pd-prove.service || true", 900)
    expect(machine.ssh("p2pctl is-ready").returncode == 3, "another machine's proof counts here")
    status = machine.apply("ready")
    expect(status["result"] == "ready", str(status)[:300])
