# SPDX-License-Identifier: MIT
"""A revert while the GPUs are in use: it does not wait for a killed process that hangs in the driver; it waits 15 minutes for a job."""
import time

from expected import expect_as_at_first
from scenario import expect, say

STARTS = "first-boot"
CARDS = "two-behind-switch"
WAITS_S = 15 * 60  # kRollbackPatience of daemon/engine/walk.hpp
SLOW_S = 10 * 60   # for the whole rollback, and for systemd, which waits for a process that does not end

HUNG = """nvidia-modprobe -c=0 -c=1
setsid sh -c 'echo $$ > /root/hung; exec 3<> /dev/nvidia0; printf hang >&3' > /dev/null 2>&1 &
until [ -s /root/hung ] && grep -q '^State:.D' /proc/$(cat /root/hung)/status; do sleep 1; done
kill -KILL $(cat /root/hung); sleep 1; cat /root/hung"""
JOB = """setsid sh -c 'exec 3< /dev/nvidia1; echo $$ > /root/job; exec sleep 7200' > /dev/null 2>&1 &
until [ -s /root/job ]; do sleep 1; done; cat /root/job"""


def run(machine):
    boot = machine.wait_boot()
    hung, job = machine.run(HUNG), machine.run(JOB)
    expect(machine.run(f"cut -d' ' -f3 /proc/{hung}/stat") == "D", "the process that was killed does not hang")
    begun, began_at = time.monotonic(), machine.now()
    machine.run("p2pctl revert --yes --no-block")
    machine.wait_logged("a restart is due", "it does not wait for the job")
    waiting = machine.run("journalctl -q --no-pager -b -u p2pd-worker -g 'a restart is due' -o cat")
    expect(f"(process {job})" in waiting, f"it does not name the job: {waiting}")
    expect(f"(process {hung})" not in waiting, f"it waits for what hangs in the driver: {waiting}")
    say(waiting.splitlines()[-1])
    status = machine.settle("idle", timeout_s=WAITS_S + 2 * SLOW_S)
    took, took_at_most = time.monotonic() - begun, machine.now() - began_at
    expect(status["result"] == "reverted", str(status)[:400])
    expect(WAITS_S <= took and took_at_most <= WAITS_S + SLOW_S, f"the reboot came after {took:.0f} s")
    expect(machine.wait_boot() != boot, "what was undone wants a reboot")
    expect_as_at_first(machine.look("reverted"), machine.notes["first"])
    loaded = machine.run("cat /sys/module/nvidia/version")
    expect(loaded == "570.123.11", f"the loaded driver is {loaded}")
