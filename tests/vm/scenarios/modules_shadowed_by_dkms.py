# SPDX-License-Identifier: MIT
"""A stock module is installed where modprobe looks first: not ready at the next boot; another apply repairs it without a reboot."""
from expected import expect_ready
from scenario import expect

STARTS = "first-boot"
CARDS = "two-behind-switch"


def run(machine):
    machine.run("systemctl start --wait p2pd-prove.service", 900)
    machine.copy_in_file(machine.machine / "stock-nvidia.ko", "/root/nvidia.ko")
    boot = machine.wait_boot()
    machine.run("cp /root/nvidia.ko /usr/lib/modules/$(uname -r)/updates/dkms/nvidia.ko && depmod -a && sync && systemctl reboot --no-block", 120)
    boot = machine.wait_boot(after=boot)
    status = machine.settle("blocked", "failed", "ready")
    expect(status["state"] == "blocked" and machine.ssh("p2pctl is-ready").returncode == 3, f"a stock module, and it is {status['state']}")
    status = machine.apply("ready")
    expect(machine.wait_boot() == boot, "it was rebooted")
    expect_ready(machine, status)
