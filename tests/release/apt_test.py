#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apt_test.py ROOT OUT [OLD.deb]... [CASE]...: p2pd from a repository that packaging/repository signs, by real apt in a booted systemd.
Needs root, GnuPG and apt-ftparchive.

ROOT is a tree made by tests/release/tree with the packages of tests/release/packages, OUT a folder with p2pd's package, OLD are packages of
earlier releases, the oldest first; this package with a lower version comes after them (an open run of an earlier release: world/upgrade).
The lines that a person types to install are those of README.md. Prints "ok NAME" or "FAIL NAME: why" a scenario.
"""
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/system"))
from namespaces import arguments  # noqa: E402
from service import Scenarios, cases_of, expect, files  # noqa: E402

ADDRESS = "https://ADDRESS"  # README's word for where a release is found
# a person answers "no" where dpkg asks whether a file that they changed is replaced
UNTYPED = "sudo() { DEBIAN_FRONTEND=noninteractive \"$@\"; }; apt() { command apt -y -o DPkg::Options::=--force-confold \"$@\"; }\n"
DAY = 86400


def readme_lines():
    """The lines of README.md that install from a repository."""
    found = [line.strip() for line in re.findall(r"(?m)^    (sudo .*)$", (TOP / "README.md").read_text())]
    at = next(number for number, line in enumerate(found) if ADDRESS in line)
    return [re.sub(r" +#.*", "", line) for line in found[at:at + 3]]


class Publisher:
    """A web server with repositories, signed by a key of its own."""

    def __init__(self, place, packages):
        self.place, self.packages = place, packages
        self.web = place / "web"
        self.web.mkdir()
        (place / "gnupg").mkdir(mode=0o700)
        os.environ["GNUPGHOME"] = str(place / "gnupg")
        for name in ("releases", "somebody"):
            subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", f"{name}@example.org", "ed25519", "sign", "never"],
                           check=True, stderr=subprocess.DEVNULL)
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=self.web)
        handler.func.log_message = lambda *_: None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def publish(self, *packages, key="releases", **settings):
        """Makes the repository hold these packages, instead of what it held."""
        made = self.place / "made"
        done = subprocess.run([TOP / "packaging/repository", made, *packages], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "P2PD_KEY": f"{key}@example.org", "P2PD_URL": f"{self.address}/apt", **settings})
        expect(done.returncode == 0, done.stdout)
        shutil.rmtree(self.web, ignore_errors=True)
        self.web.mkdir()
        made.rename(self.web / "apt")
        (self.web / "apt/p2pd.sources").rename(self.web / "p2pd.sources")
        return self.web / "apt"


PUBLISHER = None


def install(machine):
    return machine.run(UNTYPED + "\n".join(line.replace(ADDRESS, PUBLISHER.address) for line in readme_lines()), timeout_s=120)


def refused(machine, command, *words):
    """Checks that apt says these words, and that p2pd and what apt knows of packages stay as they are."""
    look = "dpkg -l p2pd 2>&1 | grep p2pd; dpkg --audit; apt-cache policy p2pd"
    before = machine.shell(look).stdout
    said = machine.shell(UNTYPED + command, timeout_s=120)
    expect(said.returncode != 0, f"apt takes it:\n{said.stdout}")
    for word in words:
        expect(word in said.stdout, f"apt does not say \"{word}\":\n{said.stdout}")
    expect(machine.shell(look).stdout == before, f"not as before:\n{before}\n{machine.shell(look).stdout}")


def version_of(package):
    return subprocess.run(["dpkg-deb", "-f", package, "Version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def works(machine, version):
    expect(machine.run("dpkg-query -W -f '${Version} ${db:Status-Status}' p2pd") == f"{version} installed", "it is not installed")
    expect(machine.run("p2pctl --version") == f"p2pctl {re.sub('~.*', '', version)}", machine.run("p2pctl --version"))
    said = machine.shell("p2pctl doctor").stdout
    expect("P2P: " in said or "no NVIDIA GPU" in said, said)
    told = machine.run("busctl get-property org.p2pd1 /org/p2pd1 org.p2pd1.Manager Version")
    expect(told == f's "{re.sub("~.*", "", version)}"', f"the service says {told}")


def changed(place, package, pattern, text):
    """The package with another control file: each match of the pattern replaced."""
    folder, new = place / "changed", place / "p2pd_changed.deb"
    subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(pattern, text, control.read_text()))
    subprocess.run(["dpkg-deb", "-Zgzip", "--root-owner-group", "-b", folder, new], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)
    return new


# ---- the cases ---------------------------------------------------------------------------------------------------------

def case_installs_upgrades_and_leaves_nothing(machine):
    paths = "find /etc /usr /var /opt -xdev \\( -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \\) -prune -o -print | sort"
    before = machine.run(paths)
    *older, newest = PUBLISHER.packages
    for number, package in enumerate(older + [newest]):
        PUBLISHER.publish(*PUBLISHER.packages[:number + 1])
        if number == 0:
            install(machine)
            machine.write("/etc/p2pd/p2pd.yaml", "reboot_delay_s: 2\n")  # an administrator's
        else:
            said = machine.run(UNTYPED + "sudo apt update && sudo apt upgrade </dev/null", timeout_s=120)
            expect("dpkg: warning" not in said, said)
        works(machine, version_of(package))
        expect(machine.read("/etc/p2pd/p2pd.yaml") == "reboot_delay_s: 2\n", "the upgrade replaced an administrator's file")
        print(f"  {version_of(package)} installed", flush=True)
    failed = machine.run("systemctl list-units --failed --no-legend 'p2pd*'")
    expect(failed == "", failed)
    machine.run(UNTYPED + "sudo apt purge p2pd", timeout_s=120)
    machine.run("rm /etc/apt/sources.list.d/p2pd.sources")
    now = machine.run(paths)
    left = set(now.splitlines()) - set(before.splitlines())
    expect(not {path for path in left if "p2pd" in path}, f"left: {sorted(left)}")
    print(f"  paths that are not of p2pd, and new: {sorted(left)}", flush=True)


def case_an_open_run_continues_after_the_upgrade(machine):
    older, newest = PUBLISHER.packages[-2:]
    PUBLISHER.publish(older)
    install(machine)
    run = machine.apply("blocked")
    machine.state("blocked")
    PUBLISHER.publish(older, newest)
    said = machine.run(UNTYPED + "sudo apt update && sudo apt upgrade </dev/null", timeout_s=120)
    expect(f"p2pd: the open run of {version_of(older)} is continued by this version" in said, said)
    works(machine, version_of(newest))
    status = json.loads(machine.shell("p2pctl status --json").stdout)
    expect((status["run"], status["state"]) == (run, "blocked"), f"{status}")


def case_an_older_version_is_refused(machine):
    PUBLISHER.publish(*PUBLISHER.packages)
    install(machine)
    refused(machine, f"sudo apt install p2pd={version_of(PUBLISHER.packages[-2])}", "Packages were downgraded")


def case_unsigned(machine):
    repository = PUBLISHER.publish(*PUBLISHER.packages)
    for signature in ("InRelease", "Release.gpg"):
        (repository / f"dists/stable/{signature}").unlink()
    refused(machine, "\n".join(["set -e", *readme_lines()]).replace(ADDRESS, PUBLISHER.address), "is not signed")


def case_expired(machine):
    PUBLISHER.publish(*PUBLISHER.packages, SOURCE_DATE_EPOCH=str(int(os.stat(PUBLISHER.packages[-1]).st_mtime) - 20 * DAY), P2PD_VALID_DAYS="10")
    refused(machine, "\n".join(["set -e", *readme_lines()]).replace(ADDRESS, PUBLISHER.address), "is expired")


def case_signed_by_somebody_else(machine):
    PUBLISHER.publish(*PUBLISHER.packages)
    sources = (PUBLISHER.web / "p2pd.sources").read_text()
    PUBLISHER.publish(*PUBLISHER.packages, key="somebody")
    (PUBLISHER.web / "p2pd.sources").write_text(sources)
    refused(machine, "\n".join(["set -e", *readme_lines()]).replace(ADDRESS, PUBLISHER.address), "is not signed")


def case_a_tampered_package(machine):
    repository = PUBLISHER.publish(*PUBLISHER.packages)
    package = repository / "pool" / PUBLISHER.packages[-1].name
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(content)
    machine.run(UNTYPED + "\n".join(readme_lines()[:2]).replace(ADDRESS, PUBLISHER.address))
    refused(machine, readme_lines()[2], "Hash Sum mismatch")


def case_no_room(machine):
    PUBLISHER.publish(*PUBLISHER.packages)
    machine.run(UNTYPED + "\n".join(readme_lines()[:2]).replace(ADDRESS, PUBLISHER.address))
    machine.run("mount -t tmpfs -o size=512k tmpfs /var/cache/apt/archives && mkdir /var/cache/apt/archives/partial")
    refused(machine, readme_lines()[2], "enough free space in /var/cache/apt/archives")


def case_glibc_is_too_old(machine):
    PUBLISHER.publish(changed(PUBLISHER.place, PUBLISHER.packages[-1], r"libc6 \(>= 2\.3\d\)", "libc6 (>= 9.1)"))
    machine.run(UNTYPED + "\n".join(readme_lines()[:2]).replace(ADDRESS, PUBLISHER.address))
    refused(machine, readme_lines()[2], "Depends: libc6 (>= 9.1)")


def main():
    global PUBLISHER
    root, work, words = arguments(network=True)
    place = work / "publisher"
    place.mkdir(parents=True)
    packages = [pathlib.Path(word).resolve() for word in words[1:] if word.endswith(".deb")]
    newest, = pathlib.Path(words[0]).resolve().glob("p2pd_*.deb")
    before = changed(place, newest, r"(?m)^Version: (.*)$", r"Version: \1~older").rename(place / "p2pd_older.deb")
    PUBLISHER = Publisher(place, [*packages, before, newest])
    scenarios = Scenarios(root, work, [word for word in words[1:] if not word.endswith(".deb")], with_p2pd=False)
    given = {name: text for name, text in files().items() if "blocked" in name}
    for case in scenarios.wanted(cases_of(globals())):
        machine = scenarios.machine(given if "open_run" in case.__name__ else {}, [root])
        machine.network = "shared"
        with machine:
            scenarios.case(case, machine)
    return scenarios.exit_code()


if __name__ == "__main__":
    sys.exit(main())
