#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""packages_test.py ROOT [CASE]...: the way back, the pins and the purge, by the real apt and dpkg, on overlays of a tree made by `root`.

Prints "ok NAME" or "FAIL NAME" a line; ROOT stays as it is, and what was mounted or started ends with it. Needs root.
P2PD_BUILD names the build directory whose bin/p2pctl is used; build/dev unless told.
"""
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
P2PCTL = pathlib.Path(os.environ.get("P2PD_BUILD") or HERE.parents[2] / "build/dev").resolve() / "bin/p2pctl"
NOT_COMPARED = [line.split()[0] for line in (HERE / "not_compared").read_text().splitlines()
                if line.strip() and not line.startswith("#")]
ENTRY = "driver-world/570.148.08-p2p"
STEPS = ("way-back", "driver-pins", "packaged-driver")
SPARED = ("cuda-toolkit-12-8", "cuda-nvcc-12-8", "libcudnn9-cuda-12", "nvidia-container-toolkit", "libnvidia-container1",
          "nsight-compute", "pciutils", "dkms")
# what dpkg runs in is a process namespace of its own: it ends with the command, and no module of this machine is touched
INSIDE = ["setpriv", "--pdeathsig", "KILL", "--bounding-set=-sys_module,-sys_boot", "unshare", "--mount", "--propagation",
          "private", "--pid", "--fork", "--kill-child", "sh", "-c",
          'mount -t proc proc "$1/proc" && shift && exec "$@"', "sh"]


class Failed(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failed(text)


def picture(path):
    """Kind and mode, owner, group, extended attributes, content; None where nothing is."""
    try:
        info = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
    xattrs = {key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
              if not key.startswith("trusted.overlay.")}
    return oct(info.st_mode), info.st_uid, info.st_gid, xattrs, content


def paragraphs(text):
    return sorted(part.strip() for part in text.split("\n\n") if part.strip())


class Tree:
    """An overlay of folders: `path` is how it is now, `before` another tree that is as it was."""

    def __init__(self, work, folders, before):
        self.work, self.before = pathlib.Path(tempfile.mkdtemp(dir=work)), before
        self.upper, self.path = self.work / "upper", self.work / "tree"
        for name in ("upper", "overlay", "tree"):
            (self.work / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={':'.join(map(str, folders))},upperdir={self.upper},workdir={self.work}/overlay", self.path], check=True)

    def run(self, *argv, check=True):
        done = subprocess.run([HERE / "enter", self.path, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        need(done.returncode == 0 or not check, f"{argv}: {done.stdout[-2000:]}")
        return done.stdout

    def start(self, *words):
        plan = self.work / "plan.json"
        return subprocess.Popen([*INSIDE, self.path, P2PCTL, *[plan if word == "PLAN" else word for word in words],
                                 "--root", self.path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def p2pctl(self, *words):
        process = self.start(*words)
        out, errors = process.communicate(timeout=1800)
        return process.returncode, json.loads(out) if out.strip().startswith("{") else {"reason": out + errors}

    def plan(self, *steps):
        rows = [{"state": name, "title": name, "check": name, "fix": name, "with": {"entry": ENTRY}} for name in steps]
        policy = {"attempts": 1, "on_failure": "keep", "reboot": "external"}
        (self.work / "plan.json").write_text(json.dumps({"name": "test", "title": "test", "policy": policy, "steps": rows}))

    def apply(self, *steps):
        """Once changes something, twice does not."""
        self.plan(*steps)
        for changed in (True, False):
            code, told = self.p2pctl("apply", "PLAN")
            need(code == 0 and told.get("changed") == changed, f"apply, changed {changed}: {code} {told}")

    def revert(self):
        code, told = self.p2pctl("revert")
        need(code == 0, f"revert: {code} {told}")

    def installed(self):
        out = self.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n")
        return {line.split()[0] for line in out.splitlines() if line.split()[1] in ("ii", "hi")}

    def touched(self):
        """Paths below which anything was written."""
        found = []
        for folder, names, files in os.walk(self.upper):
            for name in names + files:
                path = pathlib.Path(folder, name)
                found.append(path.relative_to(self.upper))
                if path.is_dir() and not path.is_symlink() and "trusted.overlay.opaque" in os.listxattr(path):
                    lower = self.before / found[-1]
                    found += [below.relative_to(self.before) for below in lower.rglob("*")]
        return sorted(set(found))

    def differences(self, without):
        told = []
        for name in self.touched():
            # names, content and so on of a directory are those of what is in it
            if any(fnmatch.fnmatchcase(f"/{name}", glob) or fnmatch.fnmatchcase(f"/{name}", glob + "/*") for glob in [*NOT_COMPARED, *without]):
                continue
            is_now, was = picture(self.path / name), picture(self.before / name)
            if is_now != was:
                told.append(f"/{name}: is {str(is_now)[:300]}, was {str(was)[:300]}")
        return told + self.different_records("/var/lib/dpkg/status" in without)

    def different_records(self, without_sums):
        """Of those that are compared by what they mean."""
        def meaning(root):
            records = {"status": [re.sub(r"(?m)^ /.* \w{32}\n", "", part) if without_sums else part for part in paragraphs((root / "var/lib/dpkg/status").read_text())],
                       "diversions": sorted(zip(*[iter((root / "var/lib/dpkg/diversions").read_text().splitlines())] * 3)),
                       "automatic": [part for part in paragraphs((root / "var/lib/apt/extended_states").read_text())
                                     if "Auto-Installed: 1" in part]}
            return records
        now, was = meaning(self.path), meaning(self.before)
        told = [f"{key}: is {one!r}" for key in now for one in now[key] if one not in was[key]]
        return told + [f"{key}: was {one!r}" for key in now for one in was[key] if one not in now[key]]

    def same(self, without=()):
        found = self.differences(without)
        need(not found, "\n".join(found[:20]))
        need(not (self.path / "var/lib/p2pd/way-back").exists(), "the way back is still there")

    def close(self):
        subprocess.run(["umount", self.path], check=True)
        shutil.rmtree(self.work)


def lived_in(tree):
    """What an administrator may have done: a hold, configuration, a choice, a unit that is off."""
    options, load = (tree.path / "etc/nvidia/current-open" / name for name in ("nvidia-options.conf", "nvidia-load.conf"))
    tree.run("apt-mark", "hold", "libcuda1", "nvidia-settings")
    options.write_text("options nvidia-current-open NVreg_EnableGpuFirmware=0\n")
    options.chmod(0o600)
    os.chown(options, 1, 1)
    os.setxattr(options, "user.note", b"mine")
    load.unlink()
    tree.run("update-alternatives", "--set", "glx", "/usr/lib/mesa-diverted")
    tree.run("systemctl", "disable", "nvidia-persistenced.service")
    tree.run("apt-mark", "manual", "nvidia-smi")


def without_archives(tree):
    tree.run("mv", "/srv/driver-world/apt", "/srv/away")


def with_archives(tree):
    tree.run("mv", "/srv/away", "/srv/driver-world/apt")


def kill_when(tree, words, at, wanted):
    """Starts p2pctl and kills it, and all that it started, once dpkg's log has `wanted` lines with `at` that are new."""
    log = tree.path / "var/log/dpkg.log"
    before = log.read_text().count(at)
    process = tree.start(*words)
    until = time.monotonic() + 600
    while process.poll() is None and log.read_text().count(at) < before + wanted:
        need(time.monotonic() < until, "it did not come that far")
        time.sleep(0.01)
    need(process.poll() is None, f"it ended first: {process.communicate()}")
    process.send_signal(signal.SIGKILL)  # the kernel ends what is in its namespace
    process.communicate()


def case_not_before_the_way_back(tree):
    tree.plan("packaged-driver")
    code, told = tree.p2pctl("apply", "PLAN")
    need(code == 1 and "not all packages could come back" in told["reason"], f"{code} {told}")
    tree.same()


def case_apply_again_revert(tree):
    tree.apply(*STEPS)
    left = tree.installed()
    need(not {name for name in left if name.startswith(("libcuda1", "nvidia-driver", "glx-", "libnvidia-glcore"))}, str(left))
    need(left.issuperset(SPARED), f"taken along: {set(SPARED) - left}")
    need("nvidia" not in tree.run("dkms", "status"), "DKMS still has it")
    need("Inst nvidia" not in tree.run("apt-get", "-s", "install", "nvidia-driver", check=False), "apt would bring a driver")
    need("Inst nvidia-container-toolkit" in tree.run("apt-get", "-s", "--reinstall", "install", "nvidia-container-toolkit"), "the pin takes too much")
    need(stat.S_IMODE((tree.path / "var/lib/p2pd/way-back").stat().st_mode) == 0o700, "the way back is open to all")
    without_archives(tree)
    tree.revert()
    with_archives(tree)
    tree.same()


def case_built_again_without_archives(tree):
    without_archives(tree)
    tree.apply(*STEPS)
    manifest = json.loads((tree.path / "var/lib/p2pd/way-back/manifest.json").read_text())
    need({row["from"] for row in manifest["packages"]} == {"rebuilt"}, "not all were built again")
    tree.revert()
    with_archives(tree)
    # a package built again brings configuration as it was found: dpkg has another sum of it, and what was missing is unknown
    # to dpkg and to the alternatives
    tree.same(["/var/lib/dpkg/info/nvidia-open-kernel-support.*", "/var/lib/dpkg/status", "/etc/nvidia/nvidia-load.conf",
               "/etc/alternatives/nvidia--nvidia-load.conf", "/var/lib/dpkg/alternatives/*"])


def case_a_lock_is_waited_for(tree):
    tree.plan(*STEPS)
    holder = ("import fcntl,subprocess,sys,threading,time\n"
              "lock=open(sys.argv[1],'w'); fcntl.lockf(lock,fcntl.LOCK_EX)\n"
              "threading.Timer(6,lock.close).start()\n"
              "sys.exit(subprocess.run(sys.argv[2:]).returncode)\n")
    began = time.monotonic()
    done = subprocess.run([*INSIDE, tree.path, sys.executable, "-c", holder, tree.path / "var/lib/dpkg/lock-frontend", P2PCTL,
                           "apply", tree.work / "plan.json", "--root", tree.path], capture_output=True, text=True, check=False)
    need(done.returncode == 0, done.stdout + done.stderr)
    need(time.monotonic() - began > 6, "it did not wait")
    need("holds /var/lib/dpkg/lock-frontend" in done.stdout + done.stderr, f"the holder is not named: {done.stdout + done.stderr}")
    tree.revert()
    tree.same()


def case_killed_in_the_purge(tree):
    tree.plan(*STEPS)
    kill_when(tree, ("apply", "PLAN"), " remove ", 12)
    need(tree.run("dpkg", "--audit") or tree.installed(), "nothing was in between")
    code, told = tree.p2pctl("apply", "PLAN")
    need(code == 0, f"{code} {told}")
    need(tree.installed().issuperset(SPARED), "taken along")
    kill_when(tree, ("revert",), " install ", 10)
    tree.revert()
    tree.same()


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / "srv/driver-world").is_dir():
        raise SystemExit(f"packages_test.py: {root} is no tree made by root")
    if "PACKAGES_TEST_WORK" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="p2pd-packages.") as work:
            return subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv], check=False,
                                  env={**os.environ, "PACKAGES_TEST_WORK": work}).returncode
    failed = 0
    lived = Tree(os.environ["PACKAGES_TEST_WORK"], [root], root)
    lived_in(lived)
    for name, case in sorted(globals().items()):
        if not name.startswith("case_") or (len(sys.argv) > 2 and name[5:] not in sys.argv[2:]):
            continue
        tree = Tree(os.environ["PACKAGES_TEST_WORK"], [lived.upper, root], lived.path)
        try:
            case(tree)
            print(f"ok {name[5:].replace('_', ' ')}", flush=True)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            failed = 1
            print(f"FAIL {name[5:].replace('_', ' ')}\n    " + str(error).replace("\n", "\n    "), flush=True)
        tree.close()
    lived.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
