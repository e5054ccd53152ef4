# SPDX-License-Identifier: MIT
"""A job uses the GPUs: the run waits for its end before it touches anything, and then goes on."""
import time

from scenario import expect, say

STARTS = "delivered"
CARDS = "no-iommu"
JOB = """nvidia-modprobe -c=0
setsid sh -c 'exec 3</dev/nvidia0; echo $$ > /root/job; until [ -e /root/enough ]; do sleep 1; done' > /dev/null 2>&1 &"""


def run(machine):
    machine.run(JOB)
    before = machine.packages()
    machine.run("p2pctl apply --yes --no-block")
    machine.wait_logged("GPUs are in use by", "it does not wait for the job")
    say(str(machine.status()["progress"]))
    time.sleep(60)
    machine.run("kill -0 $(cat /root/job)")
    expect(machine.packages() == before, "packages have changed while the job runs")
    machine.run("touch /root/enough")
    machine.wait_until(lambda: machine.packages() != before, "the job has ended, and it does not go on")
    expect(machine.status()["state"] == "walking", str(machine.status())[:300])
