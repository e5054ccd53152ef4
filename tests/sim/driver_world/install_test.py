#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""install_test.py DIR [PART]...: the new driver's steps over the real tools, in a tree made by `root`: the runfile, DKMS, depmod,
update-initramfs, dpkg. Prints "ok NAME" or "FAIL NAME" a line; DIR stays as it is, overlays take the changes. Needs root.

P2PD_BUILD names the build directory whose bin/p2pctl is used; build/dev unless told."""
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
P2PCTL = pathlib.Path(os.environ.get("P2PD_BUILD") or HERE.parents[2] / "build/dev") / "bin/p2pctl"
VERSION, OLDER = "570.148.08", "570.86.16"
ENTRY = f"driver-world/{VERSION}-p2p"
STAGE = [("runfile", "driver-runfile", {"entry": ENTRY}), ("source", "driver-source", {"entry": ENTRY}),
         ("build", "driver-build", {"entry": ENTRY})]
USERSPACE = ("userspace", "driver-userspace", {"entry": ENTRY})
REST = [("nouveau", "nouveau-blacklist", {}), ("initramfs", "initramfs", {})]
LEFT_OUT = [line.split()[0] for line in (HERE / "not_compared.install").read_text().splitlines() if line and line[0] != "#"]
FAILED = []


def modules(by):
    return ("modules", "driver-modules", {"entry": ENTRY, "by": by})


def t(name, holds, shown=""):
    print(("ok " if holds else "FAIL ") + name, flush=True)
    if not holds:
        FAILED.append(name)
        print("    " + str(shown)[-3000:].replace("\n", "\n    "), flush=True)


def picture(tree):
    """Path to kind, mode, owner, content and extended attributes of all that is compared."""
    found = {}
    for folder, folders, files in os.walk(tree):
        inside = folder[len(str(tree)):]
        folders[:] = [name for name in folders if f"{inside}/{name}" not in LEFT_OUT]
        for name in folders + files:
            path, shown = os.path.join(folder, name), f"{inside}/{name}"
            if shown in LEFT_OUT:
                continue
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
            else:
                content = ""
            xattrs = {key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)}
            found[shown] = (oct(info.st_mode), info.st_uid, info.st_gid, content, xattrs)
    return found


def differences(before, after):
    lines = [f"gone: {p}" for p in sorted(before.keys() - after.keys())]
    lines += [f"new: {p}" for p in sorted(after.keys() - before.keys())]
    lines += [f"changed: {p}: {before[p]} -> {after[p]}" for p in sorted(before.keys() & after.keys()) if before[p] != after[p]]
    return "\n".join(lines)


class Tree:
    """An overlay of `lower`; what runs in it sees the kernel of the tree as the one that runs."""

    def __init__(self, work, lower, name):
        self.work, self.path, self.said = work / name, work / name / "tree", ""
        for folder in ("upper", "overlay", "tree"):
            (self.work / folder).mkdir(parents=True)
        mount = ["mount", "-t", "overlay", "overlay", "-o",
                 f"lowerdir={lower},upperdir={self.work}/upper,workdir={self.work}/overlay", self.path]
        subprocess.run(mount, check=True)
        self.kernel = next(self.path.glob("boot/vmlinuz-*")).name[len("vmlinuz-"):]
        self.release = self.work / "osrelease"
        self.release.write_text(self.kernel + "\n")

    def enter(self, *argv):
        done = subprocess.run([str(word) for word in (HERE / "enter", self.path, *argv)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=900)
        return done.returncode, done.stdout

    def p2pctl(self, *argv, killed_after=1800):
        """p2pctl in mounts of its own, without the right to load modules of this machine; exit status and its JSON. It is
        killed with all that it started after so many seconds: -9."""
        inner = 'mount -t proc proc "$1/proc" && mount --bind "$2" "$1/proc/sys/kernel/osrelease" && shift 2 && exec "$@"'
        argv = [str(word) for word in argv]
        words = ["setpriv", "--pdeathsig", "KILL", "--bounding-set=-sys_module,-sys_boot", "unshare", "--mount",
                 "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", inner, "sh", self.path, self.release,
                 P2PCTL, *argv, "--root", self.path, "--json"]
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
                                  timeout=killed_after)
        except subprocess.TimeoutExpired:
            return -9, {}
        self.said = done.stdout + done.stderr
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, {}

    def plan(self, steps, proof=False):
        """A plan of these steps, each after the one before; `proof` adds one that cannot hold, so that nothing is made
        permanent."""
        rows = [{"state": name, "title": name, "check": check, "fix": check, "with": given} for name, check, given in steps]
        if proof:
            rows.append({"state": "proof", "title": "proof", "check": "gpu-inventory", "with": {"at_least": 2}})
        for before, row in zip(rows, rows[1:]):
            row["after"] = [before["state"]]
        plan = {"name": "test", "title": "test", "policy": {"attempts": 1, "on_failure": "keep", "reboot": "external"}, "steps": rows}
        (self.work / "plan.yaml").write_text(json.dumps(plan))
        return self.work / "plan.yaml"

    def apply(self, steps, proof=False):
        return self.p2pctl("apply", self.plan(steps, proof))

    def file(self, path):
        return self.path / path.lstrip("/")

    def loaded(self, module):
        """What modprobe would load."""
        return self.enter("modinfo", "-k", self.kernel, "-F", "filename", module)[1].strip()

    def srcversion(self, module):
        return self.enter("modinfo", "-k", self.kernel, "-F", "srcversion", module)[1].strip()

    def staged(self):
        record = json.loads(next(self.file("/var/cache/p2pd/builds").glob("*/build.json")).read_text())
        return record["modules"]


def purge(tree):
    """Takes the packaged driver away, as plain apt does."""
    sources = "nvidia-graphics-drivers nvidia-open-gpu-kernel-modules nvidia-support nvidia-persistenced nvidia-settings " \
              "nvidia-modprobe glx-alternatives".split()
    rows = [line.split() for line in tree.enter("dpkg-query", "-W", "-f", "${source:Package} ${Package}\n")[1].splitlines()]
    status, said = tree.enter("apt-get", "--quiet=2", "--yes", "purge", *[row[1] for row in rows if row[0] in sources])
    t("apt purges the packaged driver", status == 0 and not tree.file("/etc/nvidia").exists(), said)


def on_trial(tree):
    """Everything but the proof: installed, blacklisted, and given back."""
    tree.file("/usr/lib/nvidia").mkdir(exist_ok=True)  # the traps: another installer's mark, an X server
    tree.file("/usr/lib/nvidia/alternate-install-present").touch()
    tree.file("/tmp/.X0-lock").write_text("         1\n")
    before = picture(tree.path)
    status, run = tree.apply([*STAGE, USERSPACE, modules("dkms"), *REST], proof=True)
    t("past the X check and alternate-install-present", status == 4 and "proof" in run.get("reason", ""), tree.said)
    t("the runfile's libraries are there", tree.file(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}").exists(), tree.said)
    t("modprobe would load what was built", tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"],
      tree.loaded("nvidia"))
    t("through DKMS", f"p2pd-nvidia/{VERSION}, {tree.kernel}, x86_64: installed" in tree.enter("dkms", "status")[1])
    t("blacklisted until the proof", tree.file("/etc/modprobe.d/p2pd-trial.conf").exists())
    listed = tree.enter("lsinitramfs", f"/boot/initrd.img-{tree.kernel}")[1]
    t("the initramfs has both blacklists", "etc/modprobe.d/p2pd-trial.conf" in listed and "p2pd-nouveau.conf" in listed, listed[:2000])
    status, run = tree.p2pctl("revert")
    t("revert", status == 0 and run.get("state") == "idle" or run.get("result") == "reverted", tree.said)
    lines = differences(before, picture(tree.path))
    t("reverted, the tree is what it was", not lines, lines)


def deb(tree, release, makefile):
    """A kernel package of `release` as Debian's are: its scripts run what lies in /etc/kernel."""
    package = tree.work / f"linux-image-{release}"
    build = package / f"usr/lib/modules/{release}/build"
    (build / "include").mkdir(parents=True)
    (build / "Makefile").write_text(makefile)
    (build / ".config").write_text('CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n')
    (package / "boot").mkdir()
    for name in ("vmlinuz", "config"):
        (package / f"boot/{name}-{release}").write_text("CONFIG_RD_ZSTD=y\n")
    (package / "DEBIAN").mkdir()
    (package / "DEBIAN/control").write_text(f"Package: linux-image-{release}\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\n"
                                            "Description: made\n")
    for script, folder in (("postinst", "postinst.d"), ("prerm", "prerm.d"), ("postrm", "postrm.d")):
        path = package / "DEBIAN" / script
        path.write_text(f"#!/bin/sh -e\ndepmod {release}\nrun-parts --report --exit-on-error --arg={release} "
                        f"--arg=/boot/vmlinuz-{release} /etc/kernel/{folder}\n" if script == "postinst" else
                        f"#!/bin/sh\nrun-parts --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/{folder} || true\n")
        path.chmod(0o755)
    out = tree.file(f"/tmp/{package.name}.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, out], check=True, stdout=subprocess.DEVNULL)
    return f"/tmp/{out.name}"


def later_kernels(tree):
    """A kernel that the modules do not fit, then one that they do, come after the driver."""
    package = deb(tree, "6.99.0-unfit", "all:\n\tfalse\nmodules:\n\tfalse\n")
    status, said = tree.enter("dpkg", "-i", package)
    t("a kernel that the modules do not fit installs without them",
      status == 0 and not tree.file("/lib/modules/6.99.0-unfit/updates").exists(), said)
    t("dpkg has nothing to complain of", tree.enter("dpkg", "--audit")[1] == "")
    conf = tree.file(f"/usr/src/p2pd-nvidia-{VERSION}/dkms.conf")
    text = conf.read_text()
    conf.write_text(text.split("if [")[0])
    status, said = tree.enter("dpkg", "-i", package)
    t("without the condition it would end in an error", status != 0 and "One or more modules failed to install" in said, said)
    conf.write_text(text)
    status, said = tree.enter("sh", "-c", "dpkg --purge linux-image-6.99.0-unfit && rm -r /lib/modules/6.99.0-unfit; rm " + package)
    fits = "6.1.0-999-fits"
    folder = tree.file(f"/lib/modules/{fits}")
    folder.mkdir()
    for name in ("build", "source"):
        (folder / name).symlink_to(os.readlink(tree.file(f"/lib/modules/{tree.kernel}/{name}")))
    tree.enter("depmod", fits)
    status, said = tree.enter("dkms", "autoinstall", "--kernelver", fits)
    t("a kernel that they fit gets them from DKMS", status == 0 and (folder / "updates/dkms/nvidia-uvm.ko").exists(), said)


def proven(tree):
    """A run to its end, a second one, kernels that come later, and the way back."""
    before = picture(tree.path)
    steps = [*STAGE, USERSPACE, modules("dkms"), *REST]
    status, run = tree.apply(steps)
    t("a whole run", status == 0 and run.get("result") == "done", tree.said)
    t("commit lifts the blacklist", not tree.file("/etc/modprobe.d/p2pd-trial.conf").exists())
    listed = tree.enter("lsinitramfs", f"/boot/initrd.img-{tree.kernel}")[1]
    t("in the initramfs, too", "p2pd-trial" not in listed and "p2pd-nouveau.conf" in listed, listed[:2000])
    after = picture(tree.path)
    status, run = tree.apply(steps)
    lines = differences(after, picture(tree.path))
    t("a second run changes nothing", status == 0 and run.get("changed") is False and not lines, tree.said + lines)
    later_kernels(tree)
    status, run = tree.p2pctl("revert")
    t("revert with a later kernel", status == 0, tree.said)
    t("none of ours is left with it", not tree.file("/lib/modules/6.1.0-999-fits/updates").exists())
    shutil.rmtree(tree.file("/lib/modules/6.1.0-999-fits"))
    lines = differences(before, picture(tree.path))
    t("nothing but the kernels' own traces differs", not [line for line in lines.splitlines() if "/var/lib/dpkg" not in line
                                                          and "/var/log" not in line and "initramfs-tools" not in line], lines)


def by_hand(tree):
    """Without DKMS, past a module of unknown origin that would win."""
    odd = next(tree.file(f"/lib/modules/{tree.kernel}/kernel").rglob("*.ko"))
    tree.file(f"/lib/modules/{tree.kernel}/updates").mkdir()
    shutil.copy(odd, tree.file(f"/lib/modules/{tree.kernel}/updates/nvidia.ko"))
    tree.enter("depmod", tree.kernel)
    before = picture(tree.path)
    status, run = tree.apply([*STAGE, modules("modules_install")])
    t("modules_install beside DKMS", status == 0 and tree.srcversion("nvidia") == tree.staged()["nvidia"]["srcversion"], tree.said)
    t("in updates/p2pd, the other one put aside", tree.loaded("nvidia").endswith("/updates/p2pd/nvidia.ko"), tree.loaded("nvidia"))
    status, run = tree.p2pctl("revert")
    lines = differences(before, picture(tree.path))
    t("its revert gives all back", status == 0 and not lines, tree.said + lines)


def older_runfile(tree):
    """A driver of another runfile goes, and comes back."""
    runfile = f"/srv/driver-world/http/XFree86/Linux-x86_64/{OLDER}/NVIDIA-Linux-x86_64-{OLDER}.run"
    status, said = tree.enter("sh", runfile, "--silent", "--no-kernel-modules", "--no-kernel-module-source", "--no-x-check")
    t("an older runfile's driver is there", status == 0, said)
    before = picture(tree.path)
    status, run = tree.apply([STAGE[0], USERSPACE])
    manifest = tree.file("/var/lib/nvidia/log").read_text().split("\n")[0]
    t("the newer takes its place", status == 0 and manifest == VERSION, tree.said)
    status, run = tree.p2pctl("revert")
    lines = differences(before, picture(tree.path))
    t("the older one is back, to the byte", status == 0 and not lines, tree.said + lines)


def killed(tree):
    """Killed again and again, on the way there and on the way back."""
    before = picture(tree.path)
    plan = tree.plan([*STAGE, USERSPACE, modules("dkms"), *REST])
    for name, argv, first, more in (("apply", ("apply", plan), 0.5, 0.7), ("revert", ("revert",), 0.05, 0.05)):
        kills, status, run = 0, -9, {}
        while status == -9 and kills < 60:
            status, run = tree.p2pctl(*argv, killed_after=first + more * kills)
            kills += status == -9
        t(f"{name} comes to its end, however often it was killed ({kills} times)", status == 0 and kills > 2, tree.said)
    lines = differences(before, picture(tree.path))
    t("killed and reverted, the tree is what it was", not lines, lines)


def wrong_sum(tree):
    """What has another SHA-256 is never run."""
    runfile = tree.file(f"/var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-{VERSION}.run")
    runfile.parent.mkdir(parents=True)
    runfile.write_text("#!/bin/sh\ntouch /tmp/it-ran\n")
    runfile.chmod(0o755)
    status, run = tree.apply([USERSPACE])
    t("a runfile with a wrong SHA-256 is refused", status == 1 and "SHA-256" in run.get("reason", ""), tree.said)
    t("and was not run", not tree.file("/tmp/it-ran").exists())


def main():
    lower = pathlib.Path(sys.argv[1]).resolve()
    if "DRIVER_WORLD_WORK" not in os.environ:
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run(["unshare", "--mount", "--propagation", "private", __file__, lower, *sys.argv[2:]], check=False,
                                  env={**os.environ, "DRIVER_WORLD_WORK": work})
        return done.returncode
    work = pathlib.Path(os.environ["DRIVER_WORLD_WORK"])
    purged = Tree(work, lower, "purged")
    purge(purged)
    only = sys.argv[2:]
    for part in (on_trial, proven, by_hand, older_runfile, killed, wrong_sum):
        if not only or part.__name__ in only:
            part(Tree(work, f"{work}/purged/upper:{lower}", part.__name__))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
