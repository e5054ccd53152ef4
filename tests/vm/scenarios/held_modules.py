# SPDX-License-Identifier: MIT
"""A display manager holds the old driver: it is stopped for the swap and started again, and no reboot is needed."""
from expected import expect_ready
from scenario import expect

STARTS = "delivered"
CARDS = "no-iommu"
HOLDER = """[Unit]
Description={what}

[Service]
ExecStartPre=-/usr/bin/nvidia-modprobe -c=0
ExecStart=/bin/sh -c 'exec 3</dev/nvidia0; exec sleep infinity'
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
SEED = {
    "/etc/systemd/system/gdm.service": HOLDER.format(what="like a display manager"),
    "/root/seed": (0o755, "#!/bin/sh\nln -sf gdm.service /etc/systemd/system/display-manager.service\n"
                          "systemctl daemon-reload\nsystemctl enable --no-block --now gdm.service\n"),
}


def run(machine):
    boot = machine.wait_boot()
    before = machine.run("systemctl show -P MainPID gdm.service; systemctl is-active gdm.service")
    status = machine.apply("ready")
    expect(status["reboots"] == 0 and machine.wait_boot() == boot, f"{status['reboots']} reboots")
    expect_ready(machine, status)
    after = machine.run("systemctl show -P MainPID gdm.service; systemctl is-active gdm.service")
    expect(after.split()[1] == "active" and after.split()[0] != before.split()[0], f"the display manager: {before.split()}, now {after.split()}")
