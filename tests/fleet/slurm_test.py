#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""slurm_test.py ROOT [CASE]...: packaging/slurm on three booted nodes with slurmd, by munge: gpu1 and gpu2 have NVIDIA GPUs on the PCI bus,
gpu3, which also has slurmctld, has none. The health check is the wrapper of packaging/slurm/README.md. Needs root.

ROOT is a tree made by tests/system/root with the packages of tests/fleet/packages; P2PD_BUILD names the build that is installed. The
cases follow each other on the same machines. Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import json
import pathlib
import re
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from fleet import CONFIG, PLANS, TOP, address, fleet, key_pair, simulated  # noqa: E402
from namespaces import arguments  # noqa: E402
from service import ARGUMENT, Scenarios, cases_of, expect  # noqa: E402

SCRIPT = "/usr/share/p2pd/slurm/p2pd-slurm"
WRAPPER = "/etc/slurm/health-check"
PAGE = (TOP / "packaging/slurm/README.md").read_text()
LABELS = re.search(r"(?s)```sh\n(.*?)```", PAGE)[1]
CHECKS = LABELS.replace("$p2pd label", "$p2pd check")
CHECK_S = 5  # between health checks
# lays GPUs over the PCI bus of the machine: --bind FOLDER
GPUS = """[Unit]
DefaultDependencies=no
Before=sysinit.target
ConditionHost=!gpu3
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mount --bind /opt/sim/pci /sys/bus/pci/devices
"""
CONF = f"""ClusterName=fleet
SlurmctldHost=gpu3({address(3)})
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MailProg=/bin/true
ReturnToService=2
HealthCheckProgram={WRAPPER}
HealthCheckInterval={CHECK_S}
HealthCheckNodeState=ANY
NodeName=gpu1 NodeAddr={address(1)} Port=7001 CPUs=1 Feature=rack7
NodeName=gpu2 NodeAddr={address(2)} Port=7002 CPUs=1
NodeName=gpu3 NodeAddr={address(3)} Port=7003 CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """The three machines, and what slurmctld says of the nodes."""

    def __init__(self, machines):
        self.first, self.second, self.control = self.machines = machines

    def node(self, name):
        """State, reason and active features of a node."""
        told = self.control.run(f"scontrol --oneliner show node {name}")
        value = lambda key: told.partition(f" {key}=")[2]  # noqa: E731
        return value("State").split(" ")[0], value("Reason").split(" [")[0], value("ActiveFeatures").split(" ")[0].split(",")

    def until(self, name, what, holds):
        """Waits until a function of state, reason and features of a node holds."""
        try:
            self.control.until(lambda: holds(*self.node(name)), what, 60)
        except Exception as error:
            raise ValueError(f"{error}: {self.node(name)}") from error

    def stays(self, name, holds):
        """Checks that it holds over three health checks."""
        until = time.monotonic() + 3 * CHECK_S
        while time.monotonic() < until:
            expect(holds(*(now := self.node(name))), f"{name}: {now}")
            time.sleep(0.5)

    def update(self, name, words):
        self.control.run(f"scontrol update NodeName={name} {words}")


def drained_by_us(state, reason, features):
    return "DRAIN" in state and reason.startswith("p2pd: ") and "p2p" not in features


def given(state, reason, features):
    return state in ("IDLE", "ALLOCATED") and reason == "" and "p2p" in features


def free(state, reason, *_):
    return "DRAIN" not in state and reason == ""


# ---- the cases, in this order -----------------------------------------------------------------------------------------

def case_what_is_not_proven_is_drained(slurm):
    for name in ("gpu1", "gpu2"):
        slurm.until(name, "drained with p2pd's reason", drained_by_us)
        expect("P2P is not proven on this boot" in slurm.node(name)[1], f"{slurm.node(name)}")


def case_a_node_without_gpus_or_p2pd_is_not_drained(slurm):
    """With p2pd and without GPUs, with GPUs and without p2pd, without either; with both, it is. The own health check runs on all."""
    node = slurm.control
    for change in ("true", "mv /usr/bin/p2pctl /usr/bin/lost && mount --bind /opt/sim/pci /sys/bus/pci/devices"):
        node.run(change)
        slurm.stays("gpu3", free)
        for verb in ("check", "nhc", "before-change", "on-failure"):
            done = node.shell(f"{SCRIPT} {verb}")
            expect(done.returncode == 0 and free(*slurm.node("gpu3")), f"{verb}, {change}: {done.stdout} {slurm.node('gpu3')}")
    node.run(f"mv {SCRIPT} /usr/bin/lost-script && rm /run/own-check")
    slurm.stays("gpu3", free)
    node.run(f"mv /usr/bin/lost-script {SCRIPT} && mv /usr/bin/lost /usr/bin/p2pctl && test -e /run/own-check")
    slurm.until("gpu3", "drained once it has both", drained_by_us)
    node.run("umount /sys/bus/pci/devices")
    slurm.update("gpu3", "State=RESUME")
    slurm.stays("gpu3", free)


def case_what_is_proven_is_resumed(slurm):
    """Over the reboot of its run; features of slurm.conf stay."""
    slurm.first.apply("pair")
    slurm.first.ends("ready")
    slurm.first.until("systemctl show p2pd-prove.service -p InactiveEnterTimestampMonotonic | grep -q '=[1-9]'", "the proof of this boot is made", 60)
    slurm.until("gpu1", "resumed, with the features", given)
    expect(slurm.node("gpu1")[2] == ["rack7", "p2p", "p2p-ada"], f"{slurm.node('gpu1')}")
    expect(drained_by_us(*slurm.node("gpu2")), f"{slurm.node('gpu2')}")


def case_jobs_with_the_constraint_run_on_proven_nodes(slurm):
    """The feature alone keeps them from another node: gpu2 takes jobs without the constraint."""
    slurm.second.write("/etc/slurm/none", "#!/bin/sh\n")
    slurm.second.run(f"chmod 755 /etc/slurm/none && mount --bind /etc/slurm/none {SCRIPT}")
    slurm.second.until("! pgrep -f '[p]2pd-slurm check'", "the last check has ended")
    slurm.update("gpu2", "State=RESUME")
    slurm.until("gpu2", "idle", lambda state, *_: state == "IDLE")
    expect(slurm.control.run("srun -w gpu2 --immediate=20 hostname") == "gpu2", "no job runs on gpu2")
    for _ in range(3):
        expect(slurm.control.run("srun --constraint=p2p --immediate=20 hostname") == "gpu1", "it ran elsewhere")
    for words in ("-w gpu2", "-N 2"):
        done = slurm.control.shell(f"srun {words} --constraint=p2p --immediate=5 hostname")
        expect(done.returncode != 0 and "gpu2\n" not in done.stdout and "not available" in done.stdout, f"{words}: {done.stdout}")
    slurm.second.run(f"umount {SCRIPT}")
    slurm.until("gpu2", "drained again", drained_by_us)


def case_a_proof_that_is_withdrawn(slurm):
    slurm.first.run("mv /run/p2pd/ready /run/p2pd/withdrawn")
    slurm.until("gpu1", "drained", drained_by_us)
    expect(slurm.node("gpu1")[2] == ["rack7"], f"{slurm.node('gpu1')}")
    slurm.first.run("mv /run/p2pd/withdrawn /run/p2pd/ready")
    slurm.until("gpu1", "resumed", given)


def case_label_sets_the_feature_alone(slurm):
    """Neither drains nor resumes: with the wrapper as it is on the page, and by Node Health Check."""
    slurm.first.write(WRAPPER, LABELS)
    slurm.first.run("mv /run/p2pd/ready /run/p2pd/withdrawn")
    slurm.until("gpu1", "without the feature", lambda *now: now[2] == ["rack7"])
    slurm.stays("gpu1", free)
    done = slurm.first.shell(f"{SCRIPT} nhc")
    expect(done.returncode == 1 and "P2P is not proven" in done.stdout and free(*slurm.node("gpu1")), f"{done.returncode}: {done.stdout}")
    slurm.update("gpu1", "State=DRAIN Reason='p2pd: as before'")
    slurm.first.run("mv /run/p2pd/withdrawn /run/p2pd/ready")
    slurm.until("gpu1", "with the feature", lambda *now: "p2p" in now[2])
    slurm.stays("gpu1", lambda state, reason, _: "DRAIN" in state and reason == "p2pd: as before")
    expect(slurm.first.shell(f"{SCRIPT} nhc").returncode == 0, "it is ready, and nhc says no")
    slurm.first.write(WRAPPER, CHECKS)
    slurm.until("gpu1", "resumed by check", given)


def case_what_an_operator_drained_stays_drained(slurm):
    """On a ready machine, over a proof that is withdrawn and repeated, and when the operator takes over from p2pd."""
    theirs = lambda state, reason, _: "DRAIN" in state and reason == "bad fan"  # noqa: E731
    slurm.update("gpu1", "State=DRAIN Reason='bad fan'")
    slurm.stays("gpu1", theirs)
    slurm.first.run("mv /run/p2pd/ready /run/p2pd/withdrawn")
    slurm.until("gpu1", "without the feature", lambda *now: "p2p" not in now[2])
    slurm.stays("gpu1", theirs)
    slurm.first.run("mv /run/p2pd/withdrawn /run/p2pd/ready")
    slurm.until("gpu1", "with the feature", lambda *now: "p2p" in now[2])
    slurm.stays("gpu1", theirs)
    expect(slurm.first.shell(f"{SCRIPT} after-ready").returncode == 0 and theirs(*slurm.node("gpu1")), f"{slurm.node('gpu1')}")
    slurm.update("gpu1", "State=RESUME")
    slurm.until("gpu1", "idle", given)


def case_hooks(slurm):
    """Before a change the node is drained and busy while jobs run; no health check resumes it while the run is open."""
    hook = "/etc/p2pd/hooks/before-change.d/slurm"
    slurm.first.run(f"mkdir -p {hook[:-6]} && ln -s {SCRIPT} {hook} && ! p2pctl apply --yes stuck")
    expect(slurm.first.shell("p2pctl is-ready").returncode == 0 and slurm.first.status()["state"] == "blocked", f"{slurm.first.status()}")
    with slurm.control.beside("srun -w gpu1 sleep 15"):
        slurm.until("gpu1", "a job runs", lambda state, *_: state == "ALLOCATED")
        done = slurm.first.shell(hook)
        expect(done.returncode == 1 and "jobs run on node gpu1: " in done.stdout, f"{done.returncode}: {done.stdout}")
        expect("DRAIN" in slurm.node("gpu1")[0] and slurm.node("gpu1")[1] == "p2pd: it changes this machine", f"{slurm.node('gpu1')}")
        slurm.first.until(hook, "no job runs", 60)
    slurm.stays("gpu1", lambda state, *_: "DRAIN" in state)
    slurm.first.run("mv /run/p2pd/ready /run/p2pd/withdrawn")
    for verb in ("after-ready", "on-failure"):
        slurm.first.run(f"{SCRIPT} {verb}")
        expect(drained_by_us(*slurm.node("gpu1")), f"{verb} of a node that is not ready: {slurm.node('gpu1')}")
    slurm.first.run("mv /run/p2pd/withdrawn /run/p2pd/ready")
    for verb in ("after-ready", "on-failure"):
        slurm.first.run(f"{hook}; {SCRIPT} {verb}")
        slurm.until("gpu1", f"resumed by {verb}", given)
    slurm.first.run(f"{hook} && p2pctl cancel --yes")
    slurm.until("gpu1", "resumed once no run is open", given)


def case_p2pctl_does_not_answer(slurm):
    """A node too busy for an answer stays as it is."""
    slurm.first.write("/etc/slurm/busy", "#!/bin/sh\nexec sleep 60\n")
    slurm.first.run("chmod 755 /etc/slurm/busy && mount --bind /etc/slurm/busy /usr/bin/p2pctl")
    for verb in ("check", "after-ready", "on-failure"):
        done = slurm.first.shell(f"{SCRIPT} {verb}")
        expect(done.returncode == 1 and "does not answer in 10 s" in done.stdout, f"{verb}: {done.returncode}: {done.stdout}")
        expect(free(*slurm.node("gpu1")) and "p2p" in slurm.node("gpu1")[2], f"{verb}: {slurm.node('gpu1')}")
    slurm.first.run("umount /usr/bin/p2pctl")


def wait_hooks(machine, run, *directories):
    """Waits until the hooks of these directories, and no others, have passed in a run: those after its end come after its state."""
    def passed():
        events = json.loads(machine.run("p2pctl history --json"))["events"]
        return [event["text"] for event in events if event["type"] == "hooks" and event["run"] == run] == list(directories)
    machine.until(passed, f"the hooks {' and '.join(directories)} of run {run} have passed", 60)


def case_p2pd_waits_for_jobs(slurm):
    """p2pd runs the hooks: a revert waits for the job; the node is drained until a run has made it ready again."""
    for when in ("before-change", "after-ready", "on-failure"):
        slurm.first.run(f"mkdir -p /etc/p2pd/hooks/{when}.d && ln -sf {SCRIPT} /etc/p2pd/hooks/{when}.d/slurm")
    boots = len(slurm.first.boots)
    with slurm.control.beside("srun -w gpu1 sleep 60"):
        slurm.until("gpu1", "a job runs", lambda state, *_: state == "ALLOCATED")
        slurm.first.run("p2pctl revert --yes --no-block")
        slurm.first.until(lambda: "jobs run on node gpu1" in slurm.first.run("p2pctl status || true"), "p2pd waits for the job", 30)
        slurm.until("gpu1", "drained", lambda state, reason, _: "DRAIN" in state and reason == "p2pd: it changes this machine")
        expect(len(slurm.first.boots) == boots and ARGUMENT in slurm.first.read("/boot/grub/grub.cfg"), "it was changed under the job")
    run = slurm.first.ends("reverted")["run"]
    slurm.until("gpu1", "drained", drained_by_us)
    wait_hooks(slurm.first, run, "before-change.d", "on-failure.d")
    run = slurm.first.apply("pair")
    slurm.first.ends("ready", run)
    slurm.until("gpu1", "resumed", given)
    wait_hooks(slurm.first, run, "before-change.d", "after-ready.d")


def case_slurmctld_is_away(slurm):
    slurm.control.run("systemctl stop slurmctld")
    for verb in ("check", "before-change", "after-ready", "on-failure"):
        start = time.monotonic()
        done = slurm.first.shell(f"{SCRIPT} {verb}")
        expect(done.returncode == 1 and time.monotonic() - start < 50, f"{verb}: {done.returncode} after {time.monotonic() - start:.0f} s")
        expect("gpu1" in done.stdout, done.stdout)
    expect(slurm.first.shell("p2pctl is-ready").returncode == 0, "no longer ready")
    slurm.control.run("systemctl start slurmctld")
    slurm.until("gpu1", "as before", given)  # slurm.conf has no such feature: the health check sets it again
    slurm.until("gpu2", "as before", drained_by_us)
    expect(slurm.control.run("srun --constraint=p2p --immediate=30 hostname") == "gpu1", "no job runs")


def main():
    root, work, only = arguments(network=True)
    scenarios = Scenarios(root, work, only)
    layer = simulated(work, ["munge", "slurmd"])
    (layer / SCRIPT[1:]).parent.mkdir(parents=True)
    shutil.copy(TOP / "packaging/slurm/p2pd-slurm", layer / SCRIPT[1:])
    for path, text in {WRAPPER: CHECKS, "/usr/sbin/nhc": "#!/bin/sh\ntouch /run/own-check\n"}.items():
        (layer / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (layer / path[1:]).write_text(text)
        (layer / path[1:]).chmod(0o755)
    for number in (1, 2):
        device = layer / f"opt/sim/pci/0000:0{number}:00.0"
        device.mkdir(parents=True)
        for name, value in {"vendor": "0x10de", "device": "0x2684", "class": "0x030000"}.items():
            (device / name).write_text(value + "\n")
    (layer / "etc/systemd/system/gpus.service").write_text(GPUS)
    (layer / "etc/systemd/system/sysinit.target.wants").mkdir()
    (layer / "etc/systemd/system/sysinit.target.wants/gpus.service").symlink_to("../gpus.service")
    files = {"/etc/slurm/slurm.conf": CONF, "/etc/p2pd/p2pd.yaml": CONFIG, "/var/lib/slurm/slurmctld/made": "", "/var/lib/slurm/slurmd/made": "",
             **{f"/etc/p2pd/plans/{name}.yaml": text for name, text in PLANS.items()}}
    cases = scenarios.wanted(cases_of(globals()))
    with fleet(work, [layer, scenarios.layer, root], 3, key_pair(work), lambda _: files) as machines:
        machines[2].run("systemctl start slurmctld")
        slurm = Slurm(machines)
        for case in cases:
            scenarios.case(case, slurm)
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
