#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""runs_test.py ROOT [CASE]...: a run as the bus, the journal and containers show it, in a booted systemd. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import sys

sys.dont_write_bytecode = True
from machine import HERE  # noqa: E402
from namespaces import arguments  # noqa: E402
from service import Scenarios, cases_of, expect, files  # noqa: E402

MESSAGES = {  # journal messages that a run can log without a GPU
    "begun": "8e2f6a4b0c7d4e1f9a3b5c6d7e8f9012", "step": "1f4b7c2e5a8d4069b3c6e9f2a5d8b014",
    "blocked": "5c9d3e7f1a2b4c68905d6e7f8a9b0c13", "failed": "c4e6081a3b5d4f7092a4b6c8d0e2f419",
    "reverted": "d5f7192b4c6e408193a5b7c9d1e3f50a"}
FIELDS = {"step": ["P2PD_STEP"], "blocked": ["P2PD_REASON", "P2PD_NEXT"], "failed": ["P2PD_REASON"]}  # besides run and plan
REPORT = (HERE.parent / "sim/two-gpus.report.json").read_text()
BENCH = "#!/bin/sh\ntest -e /usr/local/cuda-12.8/bin/nvcc -a ! -e /etc/hung || { echo '{\"error\": \"the GPUs hang\"}'; exit 1; }\ncat /usr/local/share/report.json\n"
CONF = "# BEGIN p2pd\nNCCL_P2P_LEVEL=SYS\n# END p2pd\n"
CONTAINER = (  # of podman, with this machine's /usr and a cgroup hierarchy that crun knows on every host
    "mkdir -p /tmp/c/usr /tmp/c/etc && for at in bin lib lib64; do ln -sfn usr/$at /tmp/c/$at; done && "
    "unshare --mount sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"' sh podman --root=/tmp/containers "
    "--storage-driver=vfs --runtime=crun run --rm --cgroups=disabled --network=none --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 "
    "--volume=/usr:/usr:ro --device=p2pd.org/p2p=ready --rootfs /tmp/c sh -c 'env; cat /etc/nccl.conf; echo >> /etc/nccl.conf || echo read-only'")
REBOOTING, READY = "7a1c3e5f9b2d4068a4c6e8f0b2d4f617", "b3d5f7091a2c4e6f8091a2b3c4d5e6f8"


def case_bus_shows_progress(machine):
    with machine.beside("exec busctl monitor org.p2pd1 > /tmp/monitor 2>&1"):
        machine.until("test -s /tmp/monitor", "busctl monitors", 10)
        run = machine.apply("toolkit")
        machine.ends("done", run)
        machine.until("grep -q RunFinished /tmp/monitor", "a signal that the run ended", 10)
    seen = machine.run("cat /tmp/monitor")
    for wanted in ("Member=StepChanged", "Member=PropertiesChanged", "Member=RunFinished", '"Progress"', '"toolkit"'):
        expect(wanted in seen, f"no {wanted} on the bus")
    machine.run("p2pctl revert --yes")
    machine.ends("reverted")


def case_retry_when_the_worker_has_gone(machine):
    """A blocked run needs no worker while it waits for a person; no other request continues it."""
    run = machine.apply("stuck")
    machine.state("blocked")
    machine.until("! systemctl -q is-active p2pd-worker.service", "the worker has gone", 30)
    done = machine.shell("p2pctl apply --yes toolkit --no-block")
    expect(done.returncode == 1 and "is blocked" in done.stdout, f"another plan: {done.returncode}: {done.stdout}")
    machine.until("! systemctl -q is-active p2pd-worker.service", "the worker has gone", 30)
    done = machine.shell("p2pctl retry")
    expect(done.returncode == 4, f"retry: {done.returncode}: {done.stdout}")
    expect(machine.status()["run"] == run, "there is another run")
    machine.run("p2pctl cancel --yes")
    machine.ends("cancelled")


def case_journal(machine):
    """Each message has its id, its fields, and a text in the catalogue that says what to do."""
    for plan, state in (("blocked", "blocked"), ("fails", "failed")):
        machine.apply(plan)
        machine.state(state)
    machine.run("p2pctl revert --yes || true")
    machine.apply("toolkit")
    machine.ends("done")
    machine.run("p2pctl revert --yes")
    machine.ends("reverted")
    for name, message in MESSAGES.items():
        entries = machine.journal(f"-o verbose MESSAGE_ID={message}")
        for field in ("P2PD_RUN", "P2PD_PLAN", *FIELDS.get(name, ())):
            expect(f"{field}=" in entries, f"{name}: no {field} in {entries[:600]}")
        told = machine.journal(f"-x MESSAGE_ID={message}")
        expect("-- Subject: " in told or "░░ Subject: " in told, f"{name}: not explained: {told[:400]}")
        expect("p2pctl" in told, f"{name}: the text names no command: {told[:600]}")
        expect("@P2PD_" not in told, f"{name}: a field is not filled in: {told[:600]}")
    catalogue = machine.run("journalctl --list-catalog " + " ".join([*MESSAGES.values(), REBOOTING, READY]))
    expect(len(catalogue.splitlines()) == len(MESSAGES) + 2, f"the catalogue lacks some: {catalogue}")


def case_container_device(machine):
    """A container that asks for p2pd's device starts on a ready machine, with its settings, and on no other."""
    def expect_started(started):
        done = machine.shell(CONTAINER)
        if started:
            for wanted in ("P2PD_FIT_FOR=copies,nccl,custom-all-reduce\n", "NCCL_GRAPH_REGISTER=0\n", "GGML_CUDA_P2P=1\n", CONF, "read-only"):
                expect(done.returncode == 0 and wanted in done.stdout, f"{done.returncode}, no {wanted!r}: {done.stdout}")
        else:
            expect(done.returncode == 126 and "unresolvable CDI devices p2pd.org/p2p=ready" in done.stdout, f"{done.returncode}: {done.stdout}")

    def prove(state="ready"):
        machine.apply("proven")
        return machine.state(state)

    machine.run("chmod 755 /usr/local/sbin/p2p-bench")
    expect_started(False)
    prove()
    expect_started(True)
    machine.run("touch /etc/hung")
    machine.reboot()
    expect_started(False)
    prove("blocked")
    expect_started(False)
    machine.run("rm /etc/hung; p2pctl cancel --yes || true; rm -rf /run/cdi; mkdir /run/cdi; mount -t tmpfs -o ro tmpfs /run/cdi")
    prove()
    expect("no container can ask for p2pd.org/p2p=ready: /run/cdi" in machine.journal("-b -u p2pd-worker"), "no warning")
    machine.run("umount /run/cdi && touch /run/cdi/other")
    prove()
    expect_started(True)
    machine.run("p2pctl revert --yes --no-block")
    machine.ends("reverted")
    expect_started(False)
    expect(machine.run("ls -A /run/cdi") == "other", "somebody else's file is gone")


def main():
    root, work, only = arguments()
    scenarios = Scenarios(root, work, only)
    alone = [case_container_device]
    scenarios.together([case for case in cases_of(globals()) if case not in alone], files(seconds=1))
    scenarios.apart(alone, files(seconds=0, more={
        "/usr/local/sbin/p2p-bench": BENCH, "/usr/local/share/report.json": REPORT, "/etc/nccl.conf": CONF}))
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
