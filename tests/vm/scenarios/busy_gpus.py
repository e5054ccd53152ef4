# SPDX-License-Identifier: MIT
"""A job uses the GPUs: the run waits for its end before it touches anything, and then goes on."""
import time

from scenario import expect, say

STARTS = "delivered"
CARDS = "no-iommu"


def run(machine):
    machine.wait_boot()
    machine.run("nvidia-modprobe -c=0; setsid sh -c 'exec 3</dev/nvidia0; sleep 300; echo done > /root/job' >/dev/null 2>&1 &")
    before = machine.packages()
    machine.run("p2pctl apply --no-block")
    deadline = time.monotonic() + 600
    while machine.ssh("test -e /root/job").returncode != 0:
        expect(machine.packages() == before, "packages have changed while the job ran")
        expect(machine.run("pgrep -fc 'sleep 300'") != "0" or machine.ssh("test -e /root/job").returncode == 0, "the job was ended")
        expect(time.monotonic() < deadline, "the job does not end")
        time.sleep(10)
    say("the job has ended")
    expect("waiting" in machine.run("journalctl -q --no-pager -b -u p2pd-walk"), "it did not say what it waits for")
    status = machine.status()
    expect(status["state"] == "walking", f"it does not go on: {status['state']}")
