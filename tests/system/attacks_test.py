#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attacks_test.py ROOT [CASE]...: attacks on p2pd by an unprivileged user, or by a tree that a stranger made. Needs root.

ROOT is a tree made by `root`, and is not changed; P2PD_BUILD names the build that is installed, default: build/dev.
Prints "ok NAME" or "FAIL NAME: why" a scenario. Attacks on a parser (forged lines of the kernel's log, names of processes, device
nodes that are held) are unit tests with the tag [attack]: "tests/run attack" runs both.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from namespaces import arguments  # noqa: E402
from service import BUILD, MANAGER, Scenarios, cases_of, expect, files  # noqa: E402

SECRET = "s3ntinel"
# opens a file of the state and locks it in the two ways there are: flock, and the bytes of -shm that SQLite locks
HOLD = """import fcntl, sys, time
for name in sys.argv[1:]:
    try:
        file = open(name, "rb")
    except OSError as error:
        print(name, error.strerror, flush=True)
        continue
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if name.endswith("-shm"):
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 8, 120)
    print("HELD", name, flush=True)
    globals()[name] = file
time.sleep(600)
"""
STATE = [f"/var/lib/p2pd/{name}" for name in ("lock", "state.db", "state.db-wal", "state.db-shm")]
FETCH = """name: fetch
title: fetch
policy: {attempts: 1}
steps:
  - {gate: runfile, title: t, check: driver-runfile, fix: driver-runfile, with: {entry: ENTRY, mirrors: ["https://MIRROR/x"]}}
"""


def modes(machine, *paths):
    return machine.run(f"stat -c '%a %U %G' {' '.join(paths)}").splitlines()


# ---- locks ------------------------------------------------------------------------------------------------------------

def case_locks_of_the_state(machine):
    """An unprivileged user holds no lock that would stop a run, or its rollback; the service reads all the same."""
    machine.apply("toolkit")
    machine.ends("done")
    machine.write("/etc/hold.py", HOLD)
    with machine.beside(f"exec python3 /etc/hold.py {' '.join(STATE)} > /var/tmp/held 2>&1", "nobody"):
        machine.until(f"[ $(wc -l < /var/tmp/held) -ge {len(STATE)} ]", "it has tried", 15)
        held = machine.run("cat /var/tmp/held")
        expect("HELD" not in held, f"nobody holds a lock: {held}")
        machine.run("p2pctl revert --yes", timeout_s=120)
        machine.ends("reverted")
    told = machine.run("p2pctl history", "nobody")
    expect("reverted" in told, f"over the bus nobody reads {told!r}")


def case_modes_of_the_state(machine):
    machine.apply("blocked")
    machine.state("blocked")
    wanted = ["750 root p2pd", "600 root root", *["640 root p2pd"] * 3]
    expect(modes(machine, "/var/lib/p2pd", *STATE) == wanted, f"{modes(machine, '/var/lib/p2pd', *STATE)}")
    # as an older version left them
    machine.until("! systemctl -q is-active p2pd-worker.service", "the worker has gone", 30)
    machine.run(f"chmod 755 /var/lib/p2pd && chmod 644 {' '.join(STATE)} && chgrp root /var/lib/p2pd {' '.join(STATE)}")
    machine.run("systemd-tmpfiles --create p2pd.conf")
    expect(modes(machine, "/var/lib/p2pd", *STATE) == wanted, f"after an upgrade: {modes(machine, '/var/lib/p2pd', *STATE)}")
    machine.run("p2pctl cancel --yes")


def case_a_lock_names_who_holds_it(machine):
    machine.run("systemctl stop p2pd-worker.service; mkdir -p /var/lib/p2pd; touch /var/lib/p2pd/lock")
    machine.write("/etc/hold.py", HOLD)
    with machine.beside("exec python3 /etc/hold.py /var/lib/p2pd/lock > /var/tmp/held-by-root 2>&1"):
        machine.until("grep -q HELD /var/tmp/held-by-root", "root holds it", 15)
        done = machine.shell("p2pctl apply --yes blocked --no-dbus", timeout_s=90)
    expect(done.returncode == 1 and "holds the state: python3, process" in done.stdout, f"{done.returncode}: {done.stdout}")


# ---- secrets ----------------------------------------------------------------------------------------------------------

def told_to_nobody(machine):
    """All of p2pd that user nobody can read."""
    return machine.run("p2pctl status --json; p2pctl history --json; p2pctl report --json; cat /run/p2pd/* /var/lib/p2pd/* 2>/dev/null;"
                       f" grep -rls {SECRET} /run/p2pd /var/lib/p2pd /var/cache/p2pd /var/log 2>/dev/null; true", "nobody")


def entry_of_catalogue(machine):
    """A driver build that may be used and has a runfile: others are for packages that stay, and are named "... -on-VERSION"."""
    found = json.loads(machine.shell("p2pctl catalogue --json").stdout)
    return next(one["id"] for one in found["entries"] if one["usable"] and "-on-" not in one["id"])


def case_a_password_in_a_plan(machine):
    """It is refused, and the refusal does not repeat it."""
    text = FETCH.replace("ENTRY", entry_of_catalogue(machine)).replace("MIRROR", f"me:{SECRET}@mirror.example")
    machine.write("/etc/p2pd/plans/fetch.yaml", text)
    machine.run("chmod 600 /etc/p2pd/plans/fetch.yaml")
    done = machine.shell("p2pctl apply --yes fetch --no-block")
    expect(done.returncode == 1 and "netrc" in done.stdout, f"{done.returncode}: {done.stdout}")
    expect(SECRET not in done.stdout, f"the refusal tells it: {done.stdout}")
    expect(SECRET not in told_to_nobody(machine) + machine.journal("-o verbose"), "it is told")


def case_a_password_of_a_proxy(machine):
    """An error of the fetch quotes the proxy; the stored and shown error does not."""
    machine.write("/etc/p2pd/plans/fetch.yaml", FETCH.replace("ENTRY", entry_of_catalogue(machine)).replace("MIRROR", "mirror.example"))
    folder = "/run/systemd/system/p2pd-worker.service.d"
    machine.run(f"mkdir -p {folder} && printf '[Service]\\nEnvironment=https_proxy=nonsense://me:{SECRET}@proxy.example:1\\n' > {folder}/proxy.conf"
                " && systemctl daemon-reload && systemctl stop p2pd-worker.service")
    machine.apply("fetch")
    status = machine.state("failed", "idle", "blocked", timeout_s=180)
    expect("runfile" in json.dumps(status), f"it did not get to the fetch: {status}")
    machine.run(f"rm -r {folder} && systemctl daemon-reload")
    told = told_to_nobody(machine)
    expect("proxy" in told, f"the reason is not told: {status['reason']}")
    kept = machine.run(f"grep -rl {SECRET} /var/lib/p2pd /run/p2pd /var/cache/p2pd 2>/dev/null || true")
    expect(SECRET not in told and not kept, f"it is told, or kept in {kept}")
    expect(SECRET not in machine.journal("-o verbose -u p2pd-worker.service"), "it is in the journal")


# ---- files and calls --------------------------------------------------------------------------------------------------

def case_nothing_of_p2pd_is_writable(machine):
    machine.apply("toolkit")
    machine.ends("done")
    found = machine.run("find /run/p2pd /var/lib/p2pd /var/cache/p2pd /etc/p2pd /usr/libexec/p2pd /usr/lib/p2pd -writable ! -type l 2>/dev/null; true",
                        "nobody")
    expect(not found.strip(), f"nobody can write {found}")
    for name in ("asked", "restart", "ready", "status.json"):
        done = machine.shell(f"echo forged > /run/p2pd/{name}", "nobody")
        expect(done.returncode != 0, f"nobody writes /run/p2pd/{name}")


def case_calls_change_nothing(machine):
    before = machine.status()["run"]
    for call in ("Apply 'sa{sv}' toolkit 0", "Pause", "Resume", "Retry", "Cancel", "Revert"):
        done = machine.shell(f"busctl call {MANAGER} {call}", "nobody")
        expect(done.returncode != 0, f"nobody may {call}: {done.stdout}")
    expect(machine.status()["run"] == before, "there is another run")


# ---- a tree that a stranger made --------------------------------------------------------------------------------------

MARK = """#include <fcntl.h>
#include <unistd.h>
#include <string.h>
int main(int argc, char** argv) {
  const char* name = strrchr(argv[0], '/');
  char path[256] = "/marks/";
  strncat(path, name ? name + 1 : argv[0], 200);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  (void)argc;
  return 0;
}
"""
PROGRAMS = ["nvidia-smi", "p2p-bench", "modinfo", "modprobe", "depmod", "dpkg", "dpkg-query", "dpkg-deb", "apt-get", "apt-cache", "lsinitramfs",
            "lsinitrd", "grub-probe", "grub-mkconfig", "grub-script-check", "grub-editenv", "systemctl", "update-alternatives", "gcc", "gcc-12",
            "make", "git", "mokutil", "docker", "nvidia-ctk", "update-initramfs", "sh", "find", "dkms", "nvidia-uninstall", "kmod", "lspci"]
FORK = {"schema": "p2pd.catalogue/2",
        "releases": {"9.9.9": {"commit": "1" * 40, "known": "verified", "runfile": {"path": "/x/NVIDIA-Linux-x86_64-9.9.9.run", "bytes": 1,
                                                                                   "sha256": "0" * 64, "known": "verified"}}},
        "patches": {"test/main": {"repository": "file:///srv/none", "branch": "main", "commit": "2" * 40, "known": "verified",
                                  "base": "9.9.9", "architectures": {"Ada": "reported"}}}}
LOOKS = (["doctor"], ["doctor", "p2p-atomics"], ["plan"], ["plan", "--diff"], ["plan", "verify"], ["catalogue"],
         ["catalogue", "diff", "test/main", "--mirror", "file:///srv/none"], ["explain", "p2p-proven"], ["status"], ["verify"], ["gain"],
         ["history"], ["bench", "--quick"], ["is-ready"], ["env"], ["metrics"], ["features"], ["report", "-"], ["report", "--json"],
         ["record", "record"], ["mirror", "make", "out", "--key", "mirror.key"])


def looking_verbs():
    """All verbs except those that change or control a run, and logs, which takes no tree."""
    groups = re.findall(r"^(To look|For applications|For help).*:\n((?:  .*\n)+)",
                        subprocess.run([BUILD / "bin/p2pctl", "--help"], capture_output=True, text=True, check=True).stdout, re.M)
    return set(re.findall(r"^  (\S+)", "".join(lines for _, lines in groups), re.M)) - {"logs"}


def hostile_tree(place):
    """A machine with GPUs and packages; each of its programs leaves a mark in /marks."""
    tree = place / "tree"
    shutil.copytree(BUILD / "machines/rtx4090-x2-am5", tree, symlinks=True)
    (tree / "machine.json").unlink()
    shutil.rmtree(tree / "commands", ignore_errors=True)
    program = place / "mark"
    subprocess.run(["cc", "-static", "-x", "c", "-o", program, "-"], input=MARK, text=True, check=True)
    (tree / "marks").mkdir(mode=0o777)
    for folder in ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            (tree / folder / name).unlink(missing_ok=True)
            shutil.copy(program, tree / folder / name)
    apt = tree / "etc/apt/apt.conf.d/99hostile"
    apt.parent.mkdir(parents=True, exist_ok=True)
    (tree / "etc/p2pd/catalogue.d").mkdir(parents=True)
    (tree / "etc/p2pd/catalogue.d/fork.yaml").write_text(json.dumps(FORK))
    apt.write_text('Dir::Bin::dpkg "/usr/bin/dpkg";\nAPT::Update::Pre-Invoke {"/usr/bin/sh";};\nDPkg::Pre-Invoke {"/usr/bin/sh";};\n')
    return tree


def case_hostile_tree(scenarios):
    """p2pctl starts no program of a tree that it reads, for any user."""
    expect(looking_verbs() <= {words[0] for words in LOOKS}, f"not tried: {looking_verbs() - {words[0] for words in LOOKS}}")
    with tempfile.TemporaryDirectory(dir=scenarios.work) as place:
        tree = hostile_tree(pathlib.Path(place))
        started = subprocess.run(["chroot", tree, "/usr/bin/nvidia-smi"], check=False).returncode
        expect(started == 0 and (tree / "marks/nvidia-smi").exists(), "its programs leave no mark: the test tests nothing")
        (tree / "marks/nvidia-smi").unlink()
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "mirror.key"], cwd=place, check=True)
        (pathlib.Path(place) / "mirror.key").chmod(0o600)
        for number, words in enumerate(LOOKS):
            done = subprocess.run([BUILD / "bin/p2pctl", *words, "--root", tree], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=120, cwd=place, check=False)
            marks = sorted(path.name for path in (tree / "marks").iterdir())
            expect(not marks, f"p2pctl {' '.join(words)} ran {marks}: {done.stdout[-600:]}")
            expect(done.returncode in (0, 1, 2, 3, 4), f"p2pctl {' '.join(words)}: {done.returncode}: {done.stdout[-600:]}")
            expect(number > 0 or "\nP2P: " in done.stdout, f"doctor tells nothing: {done.stdout[-600:]}")


def main():
    root, work, only = arguments()
    scenarios = Scenarios(root, work, only)
    if scenarios.wanted([case_hostile_tree]):
        scenarios.case(case_hostile_tree, scenarios)
    scenarios.together([case for case in cases_of(globals()) if case is not case_hostile_tree], files(seconds=0))
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
