#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""upgrade_test.py ROOT OLD.deb NEW.deb [CELL]...: runs of p2pd over upgrades and downgrades of its package, by the real dpkg. Needs root.

OLD is the package of the last release, NEW the one to release, both unchanged; they run in overlays of ROOT, a tree made by `root`.
One of them is installed and leaves a run in a state: open (it waits for its reboot), finished, blocked (after its changes), reverting
(the revert waits for its reboot), swapping (the driver is swapped, and the run waits for its trial boot), swapped, or untouched
(blocked before any change). Then dpkg installs the packages that the cell names, and the cell checks:
  installed  dpkg --install succeeds; /etc/systemd/system starts the units of this version at boot, and has no link to a missing unit
  status     tells the state of the run
  boot       the services that a boot starts, those of the worker with "reassert", without an argument and with "prove", succeed
  revert     ends as delivered: each path is equal to that of a tree where dpkg did the same, and no run was
An older version need not read the state of a newer one, and may set its database aside at a boot: from there on, status and the boot
may be errors, but the revert must work. Where it cannot (NOT_REVERTED), that of the newer version must, once it is installed again. An
untouched run is removed with the package, and is not continued by the next installation, even when its step could be fixed then.
Prints "ok STATE/CELL: ..." or "FAIL STATE/CELL: ..." a cell, with what status and the services told.
"""
import json
import shutil
import subprocess
import sys
import time

import yaml

sys.dont_write_bytecode = True
from archive import Archive  # noqa: E402
from kills_test import SWAP  # noqa: E402
from world_tree import Cases, Failed, Tree, arguments, need  # noqa: E402

STEP = {"0.1.0": "state"}  # a version's word for a step that is always checked, if it is not "gate"
SERVICES = {"0.1.0": ("p2pd-acs", "p2pd-walk", "p2pd-prove"), "": ("p2pd-reassert", "p2pd-worker", "p2pd-prove")}  # of a boot
FIXES = ["{STEP: b, title: B, check: modprobe-options, fix: modprobe-options, with: {module: nvidia, options: {NVreg_EnableMSI: 1}}, after: [AFTER]}",
         "{STEP: a, title: A, check: kernel-cmdline, fix: kernel-cmdline, with: {arguments: [iommu=pt]}, after: [AFTER]}"]
# no fix: blocks the run while an administrator's file is not there
UNFIXABLE = "{STEP: c, title: C, check: modprobe-options, with: {module: nvidia_uvm, options: {uvm_disable_hmm: 1}}}"
SWAP_STEPS = [json.dumps({"STEP": name, "title": name, "check": name, "fix": name, "with": given, "after": [before for before, _ in SWAP[:number]]})
              for number, (name, given) in enumerate(SWAP)]
# states of a newer version that a version cannot revert: 0.2 keeps what a driver swap replaces by run, in /var/lib/p2pd/initramfs and
# before-runfile, where 0.1 does not find it
NOT_REVERTED = {"0.1.0": ("swapping", "swapped")}
ADMINISTRATORS = ("/etc/modprobe.d/administrators.conf", "options nvidia_uvm uvm_disable_hmm=1\n")
PACKAGES = "/srv/p2pd"
LINKS = "etc/systemd/system"
SERVICE_TIMEOUT_S = 120
SHOWN = 90  # characters of an answer in a cell's line
# the package that leaves the run, and what happens then: a package is installed, "remove", or "boot"
CHANGES = {
    "upgrade": ("OLD", "NEW"),
    "upgrade, boot": ("OLD", "NEW", "boot"),
    "upgrade, boot, downgrade": ("OLD", "NEW", "boot", "OLD"),
    "downgrade": ("NEW", "OLD"),
    "downgrade, boot": ("NEW", "OLD", "boot"),
    "downgrade, upgrade": ("NEW", "OLD", "NEW"),
    "downgrade, upgrade, boot": ("NEW", "OLD", "NEW", "boot"),
    "downgrade, boot, upgrade": ("NEW", "OLD", "boot", "NEW"),
    "downgrade, boot, upgrade, boot": ("NEW", "OLD", "boot", "NEW", "boot"),
}
REMOVALS = {
    "remove, install": ("NEW", "remove", "NEW"),
    "remove the old, install the new": ("OLD", "remove", "NEW"),
}
WANTED = {"open": ("rebooting", "done"), "finished": ("done", "done"), "blocked": ("blocked", "blocked"),
          "reverting": ("reverting", "reverted"), "swapping": ("rebooting", "done"), "swapped": ("done", "done")}  # status, and that after a boot
ENDED = ("idle", "failed", "ready")


class Machine(Tree):
    """A tree with p2pd installed. `on`: the ground, or a saved Machine whose state it continues."""
    PROGRAM = ("p2pctl",)

    def __init__(self, work, name, on, ground):
        super().__init__(work, name, on, since=ground)
        self.ground, self.done, self.version = ground, [], ""
        if isinstance(on, Machine):
            self.done, self.version = list(on.done), on.version
            for file in ("boot_id", "cmdline"):
                shutil.copy(on.work / file, self.work)

    # ---- the package

    def operate(self, word):
        """Does one operation on p2pd's package."""
        self.done.append(word)
        if word == "remove":
            self.run("dpkg", "--remove", "p2pd")
            return
        self.run("dpkg", "--install", f"{PACKAGES}/{word}.deb")
        self.version = self.run("dpkg-query", "-W", "-f", "${Version}", "p2pd")
        need(self.run("dpkg", "--audit") == "", "dpkg has something half-installed")

    def starts_at_boot(self):
        """Checks the links by which systemd starts units."""
        links = {link.name: self.file(str(link.readlink())) for link in (self.path / LINKS).glob("*.wants/p2pd*")}
        missing = sorted(name for name, unit in links.items() if not unit.exists())
        need(not missing, f"systemd is to start units that are not there: {missing}")
        units = {unit.name for unit in self.path.glob("lib/systemd/system/p2pd*") if "\n[Install]\n" in unit.read_text()}
        need(units == links.keys(), f"not started at boot: {sorted(units - links.keys())}")

    # ---- runs

    def make_plan(self, *steps):
        after = "c" if steps[0] == UNFIXABLE else ""
        lines = "".join(f"  - {one}\n" for one in steps).replace("STEP", STEP.get(self.version, "gate")).replace("AFTER", after)
        path = self.file("/root/plan.yaml")
        path.write_text(f"name: test\ntitle: test\npolicy: {{reboots: 4, reboot: external}}\nsteps:\n{lines}")
        return "/root/plan.yaml"

    def asks(self, *words):
        """The state, or the result of a run that has ended, which p2pctl tells; else its error."""
        told = self.p2pctl(*words, live=True)[1]
        ended = told.get("state") in ENDED and told.get("result")
        return ended or told.get("state") or f"error: {told.get('error') or self.said}"

    def administrators(self, there):
        path = self.file(ADMINISTRATORS[0])
        if there:
            path.write_text(ADMINISTRATORS[1])
        else:
            path.unlink(missing_ok=True)

    def service(self, unit):
        """Runs a service of the installed version as systemd would; what it said, if it failed."""
        lines = dict(line.split("=", 1) for line in self.file(f"/lib/systemd/system/{unit}.service").read_text().splitlines() if "=" in line)
        needed = lines.get("ConditionPathExists")
        if needed and not self.file(needed).exists():
            return ""
        status, said = self.enter("timeout", SERVICE_TIMEOUT_S, "env", "P2PD_IDLE_S=0", "P2PD_RETRY_S=0", *lines["ExecStart"].split())
        return "" if status == 0 else f"{unit} exits with {status}: {said}"

    def boots(self):
        """Boots, and runs p2pd's services in the order of their units; what those that failed said."""
        self.boot()
        self.run("sh", "-c", "rm -rf /run/p2pd; systemd-tmpfiles --create /usr/lib/tmpfiles.d/p2pd.conf")
        return [said for said in map(self.service, SERVICES.get(self.version, SERVICES[""])) if said]

    def reverts(self):
        """Reverts with the reboots that it asks for, after which the worker continues by itself."""
        changes = self.file("/var/lib/p2pd/undo")
        nothing = not any(changes.glob("*.json"))
        told = self.asks("revert")
        for _ in range(3):
            if told not in ("rebooting", "reverting"):
                break
            failed = self.boots()
            need(not failed, f"in the boot of a revert: {failed}")
            told = self.asks("status")
        need(told == "reverted" or (nothing and told == "idle"), f"revert: {told}")
        need(not any(changes.glob("*.json")), "undo records stay")
        return told


# ---- states ----------------------------------------------------------------------------------------------------------

def leaves_open(machine):
    told = machine.asks("apply", machine.make_plan(*FIXES))
    need(told == "rebooting", f"apply: {told}")


def leaves_finished(machine):
    leaves_open(machine)
    machine.boot()
    told = machine.asks("apply", "/root/plan.yaml")
    need(told == "done", f"apply: {told}")


def leaves_blocked(machine):
    machine.administrators(there=True)
    told = machine.asks("apply", machine.make_plan(*FIXES, UNFIXABLE))
    need(told == "rebooting", f"apply: {told}")
    machine.administrators(there=False)
    machine.boot()
    told = machine.asks("apply", "/root/plan.yaml")
    need(told == "blocked", f"apply: {told}")


def leaves_reverting(machine):
    leaves_finished(machine)
    told = machine.asks("revert")
    need(told == "reverting", f"revert: {told}")


def leaves_untouched(machine):
    told = machine.asks("apply", machine.make_plan(UNFIXABLE, *FIXES))
    need(told == "blocked" and not machine.file("/var/lib/p2pd/undo").exists(), f"apply: {told}")


def leaves_swapping(machine):
    told = machine.asks("apply", machine.make_plan(*SWAP_STEPS))
    need(told == "rebooting", f"apply: {told}")


def leaves_swapped(machine):
    leaves_swapping(machine)
    machine.boot()
    told = machine.asks("apply", "/root/plan.yaml")
    need(told == "done", f"apply: {told}")


STATES = {"open": leaves_open, "finished": leaves_finished, "blocked": leaves_blocked, "reverting": leaves_reverting, "untouched": leaves_untouched,
          "swapping": leaves_swapping, "swapped": leaves_swapped}


class Table:
    def __init__(self, work, ground):
        self.work, self.ground, self.cases, self.saved, self.twins = work, ground, Cases(), {}, {}

    def at(self, state, version):
        """A machine whose `version` has left this state."""
        if (state, version) not in self.saved:
            machine = self.saved[state, version] = Machine(self.work, f"{state}-{version}", self.ground, self.ground)
            machine.operate(version)
            STATES[state](machine)
            print(f"{machine.version} left the run {state}: {machine.asks('status')}", flush=True)
        return self.saved[state, version]

    def twin(self, done):
        """The tree where dpkg did the same, and no run was."""
        if done not in self.twins:
            self.twins[done] = Machine(self.work, f"twin-{len(self.twins)}", self.ground, self.ground)
            for word in done:
                self.twins[done].operate(word)
        return self.twins[done]

    def as_delivered(self, machine):
        machine.file("/root/plan.yaml").unlink()
        machine.same(self.twin(tuple(machine.done)), when=["packages"])
        need(machine.in_images() == self.ground.images, "the initramfs has other files")

    def run(self, state, name, operations, check):
        began, shown, why = time.monotonic(), [], None
        try:
            machine = Machine(self.work, f"{state}-{name}".replace(",", "").replace(" ", "-"), self.at(state, operations[0]), self.ground)
            check(machine, state, operations[1:], shown)
            machine.close()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            why = error
        shown = "; ".join(" ".join(line.split())[:SHOWN] for line in shown)
        self.cases.say(f"{state}/{name} ({time.monotonic() - began:.0f} s): {shown}", why)

    def changed(self, machine, state, operations, shown):
        """A run over changes of the package. An older version may answer with an error once a newer one has worked with the state; so may
        each version after a boot with the older one."""
        by_newer = newer = machine.done == ["NEW"]
        lost = booted = False
        for word in operations:
            failed = machine.boots() if word == "boot" else machine.operate(word)
            old = machine.done[-1] == "OLD"
            if word == "boot":
                booted, lost, newer = True, lost or (newer and old), newer or not old
                shown += failed
            else:
                machine.starts_at_boot()
            told, may_fail = machine.asks("status"), lost or (newer and old)
            shown.append(f"{machine.version} {word if word == 'boot' else 'installed'}: {told}")
            if told == "rebooting" and word == "boot" and lost and not old:  # the boot of the older version was the trial boot: there is another
                failed = machine.boots()
                told = machine.asks("status")
                shown.append(f"{machine.version} boot again: {told}")
            need(told == WANTED[state][booted] or (may_fail and told.startswith("error: ")), f"status after {word}: {told}")
            need(may_fail or not failed, f"boot: {failed}")
        if by_newer and state in NOT_REVERTED.get(machine.version, ()):
            told = machine.asks("revert")
            shown.append(f"revert: {told}")
            need(told.startswith("error: "), f"{machine.version} reverts this state now: remove it from NOT_REVERTED")
            machine.operate("NEW")
            shown.append(f"{machine.version} installed: {machine.asks('status')}")
        shown.append(f"revert: {machine.reverts()}")
        self.as_delivered(machine)

    def removed(self, machine, _state, operations, shown):
        """A run that has changed nothing is gone with the package, even if it could be continued after the next installation."""
        for word in operations:
            machine.operate(word)
        machine.starts_at_boot()
        shown.append(f"{machine.version} installed: {machine.asks('status')}")
        machine.administrators(there=True)
        failed = machine.boots()
        told = machine.asks("status")
        shown.append(f"boot: {told}")
        need(not failed, f"boot: {failed}")
        need(told in ("cancelled", "failed"), f"status: {told}")
        need(not machine.file("/var/lib/p2pd/undo").exists(), "the run was continued")
        machine.administrators(there=False)
        self.as_delivered(machine)


def catalogue_of_0_1(text):
    """Drop-in of the catalogue as 0.1.0 reads it."""
    table, rows = yaml.safe_load(text), []
    for name, row in table["patches"].items():
        base, more = row["base"], {key: row[key] for key in ("repository", "branch", "commit", "architectures", "module_options", "registry_dwords_forbidden")}
        runfile = {"version": base, **{key: table["releases"][base]["runfile"][key] for key in ("path", "sha256", "bytes")}}
        rows.append({"id": name, "enabled": True, "fork": "driver-world", "commit_status": "verified_in_git", "base_version": base, "runfile": runfile,
                     "kernel": {"min": "5.13"}, "compiler": {"gcc_tested": [12]}, "compat": ["pci-resize-exclude-bars"], **more})
    return json.dumps({"schema": "p2pd.catalogue/1", "runfile_hosts": table["runfile_hosts"], "entries": rows})


def prepare(work, root, packages):
    """A machine with what the packages depend on, and the packages."""
    ground = Tree(work, "ground", root)
    ground.with_grub()
    archive = Archive(ground)
    for name, fields in {"dbus": {}, "libsqlite3-0": {"Version": "3.40.1"}}.items():
        archive.holds(name, {}, **fields)
    ground.run("sh", "-c", f"dpkg --install {archive.FOLDER}/*.deb")
    for library in (work / "program/lib").glob("libsqlite3.so.*"):
        shutil.copy(library, ground.file("/usr/lib/x86_64-linux-gnu"))
    for word, package in packages.items():
        ground.file(PACKAGES).mkdir(exist_ok=True)
        shutil.copy(package, ground.file(f"{PACKAGES}/{word}.deb"))
    drop_in = ground.file("/etc/p2pd/catalogue.d/driver-world.yaml")
    drop_in.with_suffix(".json").write_text(catalogue_of_0_1(drop_in.read_text()))
    ground.images = ground.in_images()
    return ground


def main():
    root, work, (old, new, *only) = arguments()
    table = Table(work, prepare(work, root, {"OLD": old, "NEW": new}))
    cells = [(state, name, operations, table.changed) for state in WANTED for name, operations in CHANGES.items()]
    cells += [("untouched", name, operations, table.removed) for name, operations in REMOVALS.items()]
    for cell in cells:
        if not only or f"{cell[0]}/{cell[1]}" in only:
            table.run(*cell)
    return 1 if table.cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
