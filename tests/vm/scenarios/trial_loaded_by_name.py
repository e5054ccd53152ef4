# SPDX-License-Identifier: MIT
"""A boot service loads the driver by name: on trial, and in the default boot after a trial that hung, only p2pd loads the new modules."""
from expected import expect_ready
from scenario import UNATTENDED, expect, quirks, say

STARTS = "delivered"
CARDS = "two-behind-switch"
# commands of container runtimes, exporters and CUDA programs; the last line records what was loaded before p2pd ran
SERVICE = """[Unit]
Description=wants the NVIDIA driver, as container runtimes and exporters do
Before=p2pd-worker.service p2pd-prove.service

[Service]
Type=oneshot
ExecStart=-/usr/bin/nvidia-modprobe
ExecStart=-/usr/bin/nvidia-modprobe -u
ExecStart=-/sbin/modprobe nvidia
ExecStart=-/sbin/modprobe nvidia-drm
ExecStart=/usr/local/sbin/what-is-loaded

[Install]
WantedBy=multi-user.target
"""
LOADED = r"""#!/bin/sh
grep -qw p2pd.trial=1 /proc/cmdline && entry=trial || entry=default
[ -e /etc/modprobe.d/00-p2pd-trial.conf ] && ban=banned || ban=free
lsmod | grep -q '^nvidia' && loaded=loaded || loaded=absent
echo "$entry $ban $loaded" >> /var/log/what-is-loaded
sync
"""
SEED = UNATTENDED | quirks({"crash": 1}) | {
    "/etc/systemd/system/wants-driver.service": SERVICE,
    "/usr/local/sbin/what-is-loaded": (0o755, LOADED),
    "/root/seed": (0o755, "#!/bin/sh\nsystemctl daemon-reload\nsystemctl enable --no-block wants-driver.service\n"),
}


def run(machine):
    status = machine.settle("ready")
    boots = machine.run("cat /var/log/what-is-loaded").splitlines()
    say(f"what the service had loaded, a line a boot: {boots}")
    banned = [line for line in boots if " banned " in line]
    expect("trial banned absent" in banned, f"no trial boot among {boots}")
    expect("default banned absent" in banned, f"the boot after the crash is not among {boots}")
    expect(all(line.endswith(" absent") for line in banned), f"loaded outside of p2pd: {boots}")
    expect_ready(machine, status)
    boot = machine.wait_boot()
    machine.ssh("systemctl reboot")
    machine.wait_boot(after=boot)
    machine.settle("ready")
    last = machine.run("tail -1 /var/log/what-is-loaded")
    expect(last == "default free loaded", f"once proven, the service loads the driver as before: {last}")
