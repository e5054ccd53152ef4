#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ansible_test.py ROOT DEB [CASE]...: Ansible rolls p2pd out to four booted machines, over ssh, with the commands of README.md and the
inventory of packaging/ansible. Needs root.

ROOT is a tree made by tests/system/root with the packages of tests/fleet/packages, DEB a folder with p2pd's package. The cases follow
each other on the same machines. Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from fleet import CONFIG, PLANS, TOP, begin, environment, fleet, key_pair, known_hosts, names, repository, serve, simulated  # noqa: E402
from service import ARGUMENT, cases_of, expect  # noqa: E402

COUNT = 4
LIMIT_S = 900
MANY_MACHINES = (TOP / "README.md").read_text().split("## Many machines\n")[1].split("\n## ")[0]
PAGE = (TOP / "packaging/ansible/README.md").read_text()
TYPED, COMMANDS = (re.findall(r"(?m)^    (ansible\S* .*?)(?:  +#.*)?$", text) for text in (MANY_MACHINES, PAGE))
INVENTORY = re.search(r"(?s)```yaml\n(.*?)```", PAGE)[1]
BARE = "p2pd is not installed here: rollout installs "
FOLDERS = ("boot", "etc", "usr", "var/lib/p2pd", "var/cache")  # folders that must be as before after a rollback
# written by any program that is installed or removed
MOVING = re.compile(r"(etc/(passwd|group|shadow|gshadow)-|etc/ld\.so\.cache|boot/grub/grubenv|var/cache/(apt|ldconfig|debconf)/.*|.*/__pycache__/.*)$")


class Control:
    """The machine that runs Ansible: a folder with the inventory of the page, and all machines of it."""

    def __init__(self, place, root, deb, machines):
        self.place, self.deb, self.machines = place, deb, machines
        (place / "packaging").symlink_to(TOP / "packaging")
        (place / "known_hosts").write_text(known_hosts(root, COUNT))
        (place / "p2pd.yaml").write_text(CONFIG)
        for name, text in PLANS.items():
            (place / f"{name}.yaml").write_text(text)
        (place / "machines.yaml").write_text(INVENTORY)
        (place / "group_vars").mkdir()
        (place / "group_vars/all.yaml").write_text(f"""
ansible_host: 127.0.1.{{{{ inventory_hostname[3:] }}}}
ansible_user: root
ansible_ssh_private_key_file: {place}/key
ansible_ssh_common_args: -o UserKnownHostsFile={place}/known_hosts -o ConnectTimeout=5
ansible_python_interpreter: /usr/bin/python3
p2pd_config: {place}/p2pd.yaml
p2pd_plans: [{', '.join(f'{place}/{name}.yaml' for name in PLANS)}]
p2pd_settle_s: 240
p2pd_reboot_s: 90
""")

    def put_package(self):
        """Puts the package next to the inventory."""
        shutil.copy(self.deb, self.place)

    def type(self, command, *words, status=0):
        """Runs a command of README.md with more words; returns its output."""
        done = subprocess.run(["bash", "-c", " ".join([command, *map(shlex.quote, words)])], cwd=self.place, env=environment(self.place),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        expect((done.returncode == 0) == (status == 0), f"{command} {' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def check(self, *words):
        return self.type(COMMANDS[1], *words)

    def rollout(self, *words, **more):
        return self.type(COMMANDS[2], *words, **more)

    def uninstall(self, *words):
        return self.type(COMMANDS[3], *words)


def recap(text):
    """Host to its counts, as Ansible's last lines have them."""
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for host, counts in re.findall(r"(?m)^(gpu\d)\s*:\s*(ok=.*)$", text.split("PLAY RECAP")[-1])}


def files_of(machine):
    """Path to digest of the files that must be as before."""
    found = {}
    for path in (path for folder in FOLDERS for path in (machine.path / folder).rglob("*")):
        name = str(path.relative_to(machine.path))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and not MOVING.match(name):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differences(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def runs_of(machine):
    """Number of runs of plan "pair"; proofs at boot are not counted."""
    return sum(run["plan"] == "pair" for run in json.loads(machine.run("p2pctl history --json"))["runs"])


def is_ready(machine):
    return machine.shell("p2pctl is-ready").returncode == 0


def run_of(machine, plan):
    """The newest run of a plan; the proof of a later boot is another one."""
    return max((run for run in json.loads(machine.run("p2pctl history --json"))["runs"] if run["plan"] == plan), key=lambda run: run["id"])


def expect_ready(machine, boots):
    expect(is_ready(machine), f"{machine.name} is not ready: {machine.status()}")
    expect(len(machine.boots) == boots and ARGUMENT in machine.boots[-1], f"{machine.name}: {machine.boots}")


def expect_untouched(machine, before):
    expect(machine.shell("command -v p2pctl").returncode != 0, f"{machine.name} has p2pd")
    expect(not (found := differences(before[machine.name], files_of(machine))), f"{machine.name} is not as it was: {found}")


# ---- the cases, in this order -----------------------------------------------------------------------------------------

def case_installs_the_collection(control, before):
    expect(TYPED == COMMANDS[:3], f"README.md types something else: {TYPED}")
    control.type(COMMANDS[0])
    lint = control.type("cd .ansible/collections/ansible_collections/p2pd/fleet && ansible-lint")  # .ansible-lint: production, names p2pd_*
    expect(re.search(r"production profile: 0 failure\(s\), 0 warning\(s\) on 1\d files", lint), lint)


def case_check_of_bare_machines(control, before):
    """It names what rollout would install; nothing is changed."""
    said = control.check()
    expect(said.count(BARE + "the package of this machine's apt archives") == COUNT, said)
    for machine in control.machines:
        expect_untouched(machine, before)


def case_no_package(control, before):
    """Each way to have none ends in a sentence with the reason, on the first machine."""
    for name in ("good", "other"):
        (control.place / f"{name}.gpg").write_bytes(repository(control.place / name, control.deb))
    server = serve(control.place / "other")
    for words, why in (((), "No package matching 'p2pd' is available. Put p2pd_VERSION_amd64.deb next to the inventory"),
                       (("p2pd_deb=/nowhere.deb",), "Could not find or access '/nowhere.deb'"),
                       ((f"p2pd_repository={server}",), f"set p2pd_repository_key to the key that signs {server}"),
                       ((f"p2pd_repository={server}", f"p2pd_repository_key={control.place}/good.gpg"), "is not signed")):
        said = control.rollout(*(word for one in words for word in ("-e", one)), status=1)
        expect(why in said and set(recap(said)) == {"gpu1"}, f"{words}: {said}")
    for machine in control.machines:
        expect_untouched(machine, before)
    control.repository = ("-e", f"p2pd_repository={server}", "-e", f"p2pd_repository_key={control.place}/other.gpg")


def case_blocked(control, before):
    """With p2pd of a repository. Ansible reports what the machine needs, and leaves it as it was; nothing starts on the others."""
    first, *others = control.machines
    said = control.rollout("-e", "p2pd_plan=stuck", *control.repository, status=1)
    expect("gpu1 is not ready: blocked" in said and "no NVIDIA GPU on the PCI bus" in said and "is undone: fix that" in said, said)
    expect(set(recap(said)) == {"gpu1"} and len(first.boots) == 1, f"{first.boots} {said}")
    expect(first.status()["state"] == "idle" and not any((first.path / "var/lib/p2pd/undo").glob("*")), f"{first.status()}")
    for machine in others:
        expect_untouched(machine, before)


def case_check_shows_the_plan(control, before):
    """The plan of gpu1, which has p2pd by now; nothing is changed there."""
    first = control.machines[0]
    picture = files_of(first)
    control.put_package()
    said = control.check()
    shown = said.split("ok: [gpu1] => {")[-1].partition("TASK [")[0]
    expect(re.search(r'" +\+GRUB_CMDLINE_LINUX_DEFAULT=.*' + ARGUMENT, shown) and "p2pctl apply proves P2P first" in shown, shown)
    expect(said.count(f"{BARE}{control.place}/{control.deb.name}") == COUNT - 1 and recap(said)["gpu1"]["changed"] == 1, said)
    expect(not (found := differences(picture, files_of(first))), f"{first.name} was changed: {found}")
    expect(len(first.boots) == 1 and runs_of(first) == 0, f"{first.name} had another run: {first.status()}")


def case_canary_first(control, before):
    said = control.rollout()
    counts = recap(said)
    expect(len(counts) == COUNT and all(one["changed"] > 0 and one["failed"] == 0 for one in counts.values()), said)
    for machine in control.machines:
        expect_ready(machine, 2)
    runs = [run_of(machine, "pair") for machine in control.machines]
    first, *others = runs
    expect(all(first["ended"] < one["started"] for one in others), f"not one first: {[(one['started'], one['ended']) for one in runs]}")
    expect(max(one["started"] for one in others) < min(one["ended"] for one in others), "the others were not at work at once")
    print(f"  gpu1 {first['started']} to {first['ended']}, the others from {min(one['started'] for one in others)}")


def case_again(control, before):
    expect("Nothing to do." in (said := control.check()) and not any(one["changed"] for one in recap(said).values()), said)
    said = control.rollout()
    expect({host: one["changed"] for host, one in recap(said).items()} == dict.fromkeys(names(COUNT), 0), said)
    for machine in control.machines:
        expect_ready(machine, 2)
        expect(runs_of(machine) == 1, f"{machine.name} had another run")
    facts = control.type("ansible -i machines.yaml all -m setup -a filter=ansible_local")
    expect(facts.count('"ready": true') == COUNT and facts.count('"state": "ready"') == COUNT, facts)


def case_uninstall(control, before):
    said = control.uninstall()
    expect(all(one["failed"] == 0 for one in recap(said).values()), said)
    for machine in control.machines:
        expect_untouched(machine, before)
        expect(machine.boots[-1] == machine.boots[0] and len(machine.boots) == 3, f"{machine.name}: {machine.boots}")
    said = control.uninstall()
    expect({host: one["changed"] for host, one in recap(said).items()} == dict.fromkeys(names(COUNT), 0), said)


def case_second_fails(control, before):
    """One after the other: the rollout stops at gpu2, which is as it was; two are not started."""
    control.machines[1].write("/etc/broken", "")
    said = control.rollout("-e", '{"p2pd_serial": 1}', status=1)
    first, second, *others = control.machines
    expect("gpu2 is not ready: blocked: proof: not proven" in said and "is undone: fix that" in said, said)
    expect(set(recap(said)) == {"gpu1", "gpu2"}, said)
    expect_ready(first, 4)
    expect(not is_ready(second) and len(second.boots) == 5 and second.boots[-1] == second.boots[0], f"{second.boots}")
    expect(not any((second.path / "var/lib/p2pd/undo").glob("*")) and second.status()["state"] == "idle", f"{second.status()}")
    for name in ("boot/grub/grub.cfg", "etc/default/grub"):
        expect(name not in differences(before[second.name], files_of(second)), f"{name} is not as it was")
    for machine in others:
        expect_untouched(machine, before)


def case_one_of_a_batch_fails(control, before):
    """The others of its batch are completed."""
    said = control.rollout(status=1)
    expect("gpu2 is not ready" in said and recap(said)["gpu1"]["changed"] == 0, said)
    for machine in control.machines[2:]:
        expect_ready(machine, 4)
    expect(not is_ready(control.machines[1]), "gpu2 is ready")


def case_one_is_unreachable(control, before):
    """Ansible names it; nothing starts on the others of its batch."""
    (control.machines[1].path / "etc/broken").unlink(missing_ok=True)
    control.machines[3].run("systemctl stop ssh && pkill -x sshd")  # the connections that Ansible keeps, too
    control.machines[3].until("! pgrep -x sshd", "gpu4 has no sshd")
    stood = [(is_ready(machine), len(machine.boots)) for machine in control.machines]
    said = control.rollout(status=1)
    expect(re.search(r"gpu4\]: UNREACHABLE!", said) and recap(said)["gpu4"]["unreachable"] == 1, said)
    now = [(is_ready(machine), len(machine.boots)) for machine in control.machines]
    expect(now == stood, f"ready and boots were {stood}, and are {now}")
    control.machines[3].run("systemctl start ssh")


def case_one_does_not_come_back(control, before):
    """It does not return from its reboot: Ansible names it, and the others of its batch become ready."""
    control.uninstall("--limit", "gpu2,gpu3")
    control.machines[2].run("systemctl -q disable ssh")
    said = control.rollout("-e", "p2pd_reboot_s=30", status=1)
    expect("gpu3 is not ready" in said and "NOT undone" in said, said)
    expect(is_ready(control.machines[1]) and is_ready(control.machines[3]), "gpu2 or gpu4 is not ready")


def main():
    root, work, place, deb, scenarios = begin()
    key = key_pair(place)
    layers = [simulated(work, ["ssh"]), root]
    cases = scenarios.wanted(cases_of(globals()))
    with fleet(work, layers, COUNT, key, lambda number: {}) as machines:
        control = Control(place, root, deb, machines)
        before = {machine.name: files_of(machine) for machine in machines}
        for case in cases:
            scenarios.case(case, control, before)
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
