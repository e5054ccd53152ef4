# SPDX-License-Identifier: MIT
"""A display manager and a container hold the old driver: they are stopped for the swap and started again, and no reboot is needed."""
from scenario import expect, expect_ready

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
# what a container's engine is asked, by the words that p2pd uses: the container is a scope of its name
DOCKER = """#!/bin/sh
case "$1" in
    stop) shift; systemctl stop "docker-$(cat /run/container).scope" ;;
    start) systemd-run --scope --unit="docker-$(cat /run/container).scope" --slice=system.slice sh -c 'exec 3</dev/nvidia0; exec sleep infinity' >/dev/null 2>&1 & ;;
    inspect) echo trainer ;;
    ps) cat /run/container ;;
esac
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
