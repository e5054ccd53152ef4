#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""images_test.py ROOT DEB [CASE]...: a machine that cloud-init makes ready by packaging/images/user-data.yaml, and the script for MAAS.
Needs root.

ROOT is a tree made by tests/system/root with the packages of tests/fleet/packages, DEB a folder with p2pd's package. A web server serves
a signed apt repository with it. The user data get its address and key, and the plan. Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import base64
import json
import pathlib
import sys

import yaml

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from fleet import PLANS, TOP, begin, fleet, key_pair, repository, serve, simulated  # noqa: E402
from service import ARGUMENT, cases_of, expect  # noqa: E402

SEED = "/var/lib/cloud/seed/nocloud"
MAAS = TOP / "packaging/images/maas-p2pd-doctor"
DOCTOR = "RESULT_PATH=/run/result.yaml sh /root/maas-p2pd-doctor"


def filled_in(address, key):
    """user-data.yaml with its three places filled in. The machine keeps its archive, which cloud-init would replace by Debian's."""
    text = (TOP / "packaging/images/user-data.yaml").read_text()
    for old, new in (("https://mirror.example", address), (" KEY\n", f" {base64.b64encode(key).decode()}\n"), ("plan: geforce-p2p", "plan: pair"),
                     ("\napt:\n", "\napt:\n  preserve_sources_list: true\n")):
        expect(text.count(old) == 1, f"the user data does not have one {old}")
        text = text.replace(old, new)
    return text


# ---- the cases, in this order -----------------------------------------------------------------------------------------

def case_cloud_init_takes_the_user_data(machine):
    said = machine.run(f"cloud-init schema --config-file {SEED}/user-data")
    expect(said.startswith("Valid cloud-config"), said)
    bad = machine.shell(f"sed 's/^packages: .*/packages: p2pd/' {SEED}/user-data >/run/bad && cloud-init schema --config-file /run/bad")
    expect(bad.returncode != 0, f"a word where a list is wanted: {bad.stdout}")


def case_cloud_init_makes_it_ready(machine):
    status = machine.ends("ready")
    expect(len(machine.boots) == 2 and ARGUMENT in machine.boots[-1] and status["reboots"] == 1, f"{machine.boots}, {status}")
    said = machine.run("p2pctl is-ready && cloud-init status --wait --long", timeout_s=120)
    expect("status: done" in said, said)
    result = json.loads(machine.read("/var/lib/cloud/data/result.json"))
    expect(result["v1"]["errors"] == [], f"{result}")


def case_the_next_boot_begins_nothing(machine):
    run = machine.status()["run"]
    machine.reboot()
    machine.until("p2pctl is-ready", "it is ready again")
    runs = [one for one in json.loads(machine.run("p2pctl history --json"))["runs"] if one["plan"] == "pair"]
    expect(len(runs) == 1 and len(machine.boots) == 3, f"after run {run}: {runs}, {machine.boots}")


def maas_status(machine):
    """Status that the script reported to MAAS."""
    return yaml.safe_load(machine.run("cat /run/result.yaml"))["status"]


def case_maas_tells_that_nothing_is_left_to_fix(machine):
    machine.run(f"cat >/root/maas-p2pd-doctor <<'END'\n{MAAS.read_text()}\nEND")
    machine.run(DOCTOR)
    expect(maas_status(machine) == "passed", "it did not pass")


def case_maas_tells_what_a_person_has_to_fix(machine):
    machine.run("sed -i 's/plan: .*/plan: stuck/' /etc/p2pd/p2pd.yaml")
    done = machine.shell(DOCTOR)
    expect(done.returncode == 4 and "You must fix 1 thing" in done.stdout, f"{done.returncode}: {done.stdout}")
    expect(maas_status(machine) == "failed", "it passed")


def case_maas_passes_what_p2pd_can_fix(machine):
    machine.run("sed -i 's/plan: .*/plan: pair/' /etc/p2pd/p2pd.yaml && p2pctl revert --yes --no-block")
    machine.ends("reverted")
    done = machine.shell("p2pctl doctor")
    expect(done.returncode == 2, f"{done.returncode}: {done.stdout}")
    machine.run(DOCTOR)
    expect(maas_status(machine) == "passed", "it did not pass")


def case_maas_can_read_the_header(_):
    header = MAAS.read_text().split("# --- Start MAAS 1.0 script metadata ---\n")[1].split("# --- End MAAS 1.0 script metadata ---\n")[0]
    known = yaml.safe_load("\n".join(line.removeprefix("# ") for line in header.splitlines()))
    expect(known["name"] == MAAS.name.removeprefix("maas-") and known["script_type"] == "testing", f"{known}")
    expect(set(known) <= {"name", "title", "description", "script_type", "hardware_type", "parallel", "timeout", "packages"}, f"{known}")


def main():
    root, work, place, deb, scenarios = begin()
    key = repository(work / "repository", deb)
    files = {f"{SEED}/user-data": filled_in(serve(work / "repository"), key), f"{SEED}/meta-data": "instance-id: gpu1\nlocal-hostname: gpu1\n",
             **{f"/etc/p2pd/plans/{name}.yaml": text for name, text in PLANS.items()}}
    cases = scenarios.wanted(cases_of(globals()))
    with fleet(work, [simulated(work, []), root], 1, key_pair(place), lambda number: files) as (machine,):
        for case in cases:
            scenarios.case(case, machine)
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
