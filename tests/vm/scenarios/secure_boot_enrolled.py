# SPDX-License-Identifier: MIT
"""Secure Boot, and the key of this machine's DKMS enrolled: p2pd signs its modules with it, and the machine becomes ready."""
from expected import expect_ready, expect_same_packages
from scenario import expect, say
from scenarios.keep_userspace import SEED as KEEP, expect_beside_packages
from scenarios.secure_boot import VARIABLE

STARTS = "delivered"
CARDS = "two-behind-switch"
FIRMWARE = "secure-boot-enrolled"
SEED = KEEP


def expect_signed(machine):
    """Checks that the loaded module is signed with the enrolled key, and that the kernel trusts the signature."""
    serial = machine.run("openssl x509 -inform DER -in /var/lib/dkms/mok.pub -noout -serial").removeprefix("serial=")
    for module, file in (("nvidia", "nvidia-current-open"), ("nvidia_uvm", "nvidia-current-open-uvm")):
        key = machine.run(f"modinfo -F sig_key {file}").replace(":", "")
        expect(key == serial, f"{file} is signed with {key or 'no key'}, not with {serial}")
        taint = machine.run(f"cat /sys/module/{module}/taint")
        expect("E" not in taint, f"{module} taints the kernel: {taint}")
        say(f"{module}: signer {machine.run(f'modinfo -F signer {file}')}, taint {taint}")
    expect(int(machine.run("cat /proc/sys/kernel/tainted")) & 1 << 13 == 0, "an unsigned module was loaded")


def run(machine):
    machine.wait_boot()
    before = machine.packages()
    expect(machine.run(f"od -An -tu1 -j4 {VARIABLE}").strip() == "1", "Secure Boot is off")
    status = machine.settle("ready")
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    expect("[integrity]" in machine.run("cat /sys/kernel/security/lockdown"), "the kernel is not locked down")
    expect_beside_packages(machine)
    expect_signed(machine)
    expect_same_packages(machine.packages(), before)
