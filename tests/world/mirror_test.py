#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mirror_test.py DIR: one machine builds with real kbuild and makes a mirror, which a web server serves; three others use it and
compile nothing, though DKMS installs it; a fifth gets a mirror with a wrong module. Prints "ok NAME" or "FAIL NAME" a line, then
compile-seconds and bytes of each. DIR is a tree made by `root` and is not changed. Needs root."""
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from install_test import modules, purge  # noqa: E402
from world_tree import ENTRY, VERSION, Cases, Tree, arguments  # noqa: E402

STAGE = [(name, {"entry": ENTRY}) for name in ("driver-runfile", "driver-source", "driver-build")]
STEPS = [*STAGE, modules("dkms")]
CASES = Cases()
# each compiler that runs leaves a line: its processor seconds
TIMED = """#!/bin/bash
TIMEFORMAT='%U %S'
{ time x86_64-linux-gnu-gcc-12 "$@" 2>&3; } 3>&2 2>>/var/log/compilers
"""
NONE = "#!/bin/sh\necho 'no compiler may run' >>/var/log/compilers\nexit 1\n"


def t(name, holds, shown=""):
    CASES.say(name, None if holds else shown)


class Served:
    """Serves a folder over HTTP; records the paths requested and the bytes sent."""

    def __init__(self, folder):
        self.asked, self.bytes = [], 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(self.handler(), directory=str(folder)))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def handler(served):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def copyfile(self, source, outputfile):
                data = source.read()
                served.asked.append(self.path)
                served.bytes += len(data)
                outputfile.write(data)

            def log_message(self, *_):
                pass
        return Handler

    def taken(self):
        """(bytes, paths) since the last call."""
        told, self.bytes, self.asked = (self.bytes, self.asked), 0, []
        return told

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Machine:
    """A tree whose compiler is `gcc`, and what an apply of it costs."""

    def __init__(self, tree, gcc):
        self.tree = tree
        path = tree.file("/usr/bin/gcc-12")
        path.unlink()
        path.write_text(gcc)
        path.chmod(0o755)

    def uses(self, url, key):
        """Sets the mirror in p2pd.yaml; no repository or host of runfiles is available as a fallback."""
        self.tree.file("/etc/p2pd/mirror.pub").write_bytes(key.read_bytes())
        self.tree.file("/etc/p2pd/p2pd.yaml").write_text(json.dumps({"mirror": url, "trusted_keys": ["/etc/p2pd/mirror.pub"]}))

    def apply(self, steps=None):
        begin = time.monotonic()
        status, run = self.tree.apply(steps or STEPS, live=True)
        self.seconds = time.monotonic() - begin
        return status == 0 and run.get("result") == "done"

    def compiled(self):
        """(compilers that ran, their processor seconds)."""
        log = self.tree.file("/var/log/compilers")
        lines = log.read_text().splitlines() if log.exists() else []
        return len(lines), sum(float(word) for line in lines for word in line.split() if re.fullmatch(r"[0-9.]+", word))

    def builds(self):
        """Name of each build to its record."""
        return {path.parent.name: json.loads(path.read_text()) for path in self.tree.file("/var/cache/p2pd/builds").glob("*/build.json")}

    def cost(self, name, taken=0):
        count, seconds = self.compiled()
        print(f"{name}: {count} compilers, {seconds:.1f} compile-seconds, {taken} bytes from the mirror, apply {self.seconds:.1f} s", flush=True)


def lose_sources(tree):
    """Removes all repositories and runfiles except those of the mirror."""
    for name in ("git", "http"):
        shutil.rmtree(tree.file(f"/srv/driver-world/{name}"))


def canary(tree, key):
    """Builds, makes a mirror at /srv/mirror, makes it again."""
    machine = Machine(tree, TIMED)
    t("the first machine builds", machine.apply(), tree.said)
    machine.cost("1st, without a mirror")
    t("compilers are counted", machine.compiled()[0] > 10 and machine.compiled()[1] > 0, machine.compiled())
    tree.file("/root/mirror.key").write_bytes(key.read_bytes())
    tree.file("/root/mirror.key").chmod(0o644)
    make = ("mirror", "make", "/srv/mirror", "--key", "/root/mirror.key")
    status, told = tree.p2pctl(*make, live=True)
    t("a key that others can read is refused", status == 1 and "chmod 600" in told.get("next", ""), tree.said)
    tree.file("/root/mirror.key").chmod(0o600)
    status, told = tree.p2pctl(*make, live=True)
    t("mirror make", status == 0 and told.get("skipped") == [] and told["bytes"] == told["bytes_written"], tree.said)
    print(f"mirror: {told.get('files')} files, {told.get('bytes')} bytes", flush=True)
    lines = tree.file("/srv/mirror/manifest").read_text().split("\n", 1)
    t("openssl verifies it, too", verified(tree.work, lines, key), lines[0])
    status, told = tree.p2pctl(*make, live=True)
    t("made again, nothing but the manifest is written", status == 0 and told["written"] == [], tree.said)
    return machine


def verified(work, lines, key):
    """Verifies a manifest by hand, as the manual page describes."""
    (work / "list").write_text(lines[1])
    subprocess.run(f"echo {lines[0].split()[1]} | base64 -d >{work}/sig", shell=True, check=True)
    done = subprocess.run(["openssl", "pkeyutl", "-verify", "-inkey", key, "-rawin", "-in", work / "list", "-sigfile", work / "sig"],
                          check=False, stdout=subprocess.DEVNULL)
    return done.returncode == 0


def follower(tree, first, served, public):
    """Takes all of it from the mirror; its compiler fails."""
    machine = Machine(tree, NONE)
    machine.uses(served.url, public)
    lose_sources(tree)
    status, told = tree.p2pctl("plan", tree.plan(STEPS), live=True)
    changes = [change["change"] for step in told.get("steps", []) for change in step.get("changes", [])]
    t(f"{tree.name}: plan says so", f"take modules for {tree.kernel} from the mirror" in changes, tree.said)
    served.taken()
    t(f"{tree.name}: applied", machine.apply(), tree.said)
    taken, asked = served.taken()
    machine.cost(f"{tree.name}, with the mirror", taken)
    t(f"{tree.name}: no compiler ran", machine.compiled()[0] == 0, tree.file("/var/log/compilers"))
    mine, its = machine.builds(), first.builds()
    t(f"{tree.name}: the same modules", mine.keys() == its.keys() and all(mine[name]["modules"] == its[name]["modules"] for name in its), mine)
    t(f"{tree.name}: its record says from where", all(one.get("mirror") == {"url": served.url} for one in mine.values()), mine)
    t(f"{tree.name}: runfile, source and modules came over http",
      all(any(word in path for path in asked) for word in (f"NVIDIA-Linux-x86_64-{VERSION}.run", ".tar.gz", "/nvidia-uvm.ko")), asked)
    t(f"{tree.name}: modprobe would load them", tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"], tree.loaded("nvidia"))
    before = tree.snapshot()
    t(f"{tree.name}: a second run changes nothing", machine.apply() and not tree.differences(before), tree.said)
    status, run = tree.p2pctl("revert", live=True)
    t(f"{tree.name}: revert undoes it", status == 0 and not tree.file("/var/cache/p2pd/builds").exists(), tree.said)


def lied_to(tree, served, public):
    """The mirror's module is not the one in its manifest: refused, and built here."""
    module = next((path for path in served.folder.glob("builds/*/nvidia.ko")))
    good = module.read_bytes()
    module.write_bytes(good[:1000] + bytes([good[1000] ^ 1]) + good[1001:])
    machine = Machine(tree, TIMED)
    machine.uses(served.url, public)
    t("a mirror that lies: applied all the same", machine.apply(), tree.said)
    machine.cost("5th, from a mirror that lies", served.taken()[0])
    refused = [one.get("mirror", {}).get("refused", "") for one in machine.builds().values()]
    t("the record says why it was built here", all("its SHA-256 is" in one for one in refused), refused)
    t("and it was", machine.compiled()[0] > 10, machine.compiled())
    module.write_bytes(good)


def main():
    root, work, _ = arguments()
    key, public = work / "mirror.key", work / "mirror.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    purged = Tree(work, "purged", root)
    purge(purged)
    first = Tree(work, "1st", purged)
    built = canary(first, key)
    served = Served(first.file("/srv/mirror"))
    served.folder = first.file("/srv/mirror")
    try:
        for name in ("2nd", "3rd", "4th"):
            tree = Tree(work, name, purged)
            follower(tree, built, served, public)
            tree.close()
        tree = Tree(work, "5th", purged)
        lied_to(tree, served, public)
        tree.close()
    finally:
        served.close()
    first.close()
    return 1 if CASES.failed else 0


if __name__ == "__main__":
    sys.exit(main())
