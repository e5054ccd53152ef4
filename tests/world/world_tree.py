# SPDX-License-Identifier: MIT
"""Overlays of a tree made by `root`: commands in one, its boots, and the differences between two of them.

A script calls arguments() first, which restarts it with mounts of its own: what it mounts ends with it.
P2PD_BUILD names the build directory whose bin/p2pctl is used; default: build/dev.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
DRIVER_WORLD = HERE.parent / "sim/driver_world"
sys.path.insert(0, str(HERE.parent / "sim"))
from terminal import agreed  # noqa: E402
from tree import compared, entry, noted, records, scratch_directory  # noqa: E402

BUILD = pathlib.Path(os.environ.get("P2PD_BUILD") or HERE.parents[1] / "build/dev").resolve()
VERSION, OLDER = "570.148.11", "570.86.11"
ENTRY = f"driver-world/{VERSION}-p2p"
CHECKS = {"default-kernel": "bootable-kernels"}  # fixes whose check has another name
# the tree's kernel is the running one; boots are files; p2pctl is at /mnt
SETUP = """
mount --bind "$dir/../osrelease" "$dir/proc/sys/kernel/osrelease" && mount --bind "$dir/../boot_id" "$dir/proc/sys/kernel/random/boot_id" &&
mount --bind "$dir/../cmdline" "$dir/proc/cmdline" && mount --bind "$dir/../../program" "$dir/mnt" """


class Failed(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failed(text)


def arguments(mark="srv/driver-world", made_by="root"):
    """The tree that the command line names, which has `mark`, a folder to work in, and the other words; in mounts of this script's own."""
    if len(sys.argv) < 2:
        raise SystemExit(sys.modules["__main__"].__doc__)
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / mark).exists():
        raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: {root} is no tree made by {made_by}")
    if "DRIVER_WORLD_WORK" not in os.environ:
        with scratch_directory("driver-world.") as work:
            done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv], check=False,
                                  env={**os.environ, "DRIVER_WORLD_WORK": work})
        raise SystemExit(done.returncode)
    work = pathlib.Path(os.environ["DRIVER_WORLD_WORK"])
    lay_program(root, work / "program")
    return root, work, sys.argv[2:]


def lay_program(root, to):
    """Copies p2pctl, the worker and kill_at as they are installed, with libraries that a tree may lack (or lose with the driver)."""
    (to / "bin").mkdir(parents=True)
    for name in ("p2pctl", "p2pd-worker", "kill_at"):
        shutil.copy(BUILD / "bin" / name, to / "bin")
    shutil.copytree(BUILD / "lib", to / "lib", symlinks=False)
    ldd = ["ldd", BUILD / "bin/p2pctl", BUILD / "bin/p2pd-worker"]
    for line in subprocess.run(ldd, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        name, _, path = line.split(" (")[0].strip().partition(" => ")
        if path and not re.match(r"(libc|libm|ld-linux.*)\.so", name):
            shutil.copy(path, to / "lib")


class Tree:
    """A machine that is an overlay `on` a folder or another Tree: `path` is its state now, `before` its earlier state, or that of the
    Tree `since` below it. `upper`: first contents, those of another overlay on the same base."""

    PROGRAM = ("env", "LD_LIBRARY_PATH=/mnt/lib", "/mnt/bin/p2pctl")  # of a tree that is its own machine
    LOADER = f'&& mount --bind "{DRIVER_WORLD}/grub-probe" "$dir/usr/sbin/grub-probe"'  # GRUB sees a disk

    def __init__(self, work, name, on, since=None, upper=None):
        self.work, self.name = work / name, name
        self.upper, self.path = self.work / "upper", self.work / "tree"
        for folder in ("overlay", "tree", *(() if upper else ("upper",))):
            (self.work / folder).mkdir(parents=True)
        if upper:
            subprocess.run(["cp", "--archive", "--reflink=auto", upper, self.upper], check=True)
        self.before, self.folders = (on.path, [self.upper, *on.folders]) if isinstance(on, Tree) else (on, [self.upper, on])
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={':'.join(map(str, self.folders[1:]))},upperdir={self.upper},workdir={self.work}/overlay", self.path],
                       check=True)
        self.uppers = [self.upper]
        if since:
            self.before, self.uppers = since.path, self.folders[:-len(since.folders)]
        self.said, self.mounts = "", ""
        self.runs_kernel(on.kernel if isinstance(on, Tree) else max((path.name for path in self.path.glob("boot/vmlinuz-*")), default="vmlinuz-")[len("vmlinuz-"):])
        self.boot("root=/dev/vda1 ro quiet")

    def runs_kernel(self, release):
        self.kernel = release
        (self.work / "osrelease").write_text(release + "\n")

    # ---- commands

    def environment(self, outside=False):
        return {**os.environ, "ENTER_SETUP": f"{SETUP} {self.LOADER} {self.mounts}", **({"ENTER_OUTSIDE": "1"} if outside else {})}

    def enter(self, *argv):
        """Exit status and output of a command in the tree."""
        done = subprocess.run([str(word) for word in (DRIVER_WORLD / "enter", self.path, *argv)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False, timeout=1800, env=self.environment())
        return done.returncode, done.stdout

    def run(self, *argv, check=True):
        status, said = self.enter(*argv)
        need(status == 0 or not check, f"{argv}: {said[-2000:]}")
        return said

    def start(self, *words, live=False, inside=(), pass_fds=()):
        """Starts p2pctl: on the tree as its own machine if `live`, else as on an image; `inside`: words before its own."""
        if live:
            words = agreed([f"/mnt/{word.name}" if isinstance(word, pathlib.Path) else word for word in words])
            argv = [*inside, *self.PROGRAM, *words, "--json"]
            argv += ["--no-reboot"] if words[0] in ("apply", "revert") else []
        else:
            argv = [*inside, BUILD / "bin/p2pctl", *agreed(words), "--root", self.path, "--json"]
        return subprocess.Popen([str(word) for word in (DRIVER_WORLD / "enter", self.path, *argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, errors="replace", env=self.environment(outside=not live), pass_fds=pass_fds)

    def finish(self, process, timeout=1800):
        """Exit status of a started p2pctl, and the JSON it printed; -9 if it was killed."""
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return self.kill(process)
        self.said = out + errors
        try:
            return process.returncode, json.loads(out)
        except ValueError:
            return process.returncode, {"reason": self.said}

    def kill(self, process):
        """Sends SIGKILL: the process is the parent of process 1 of a namespace, with which the kernel ends all that p2pctl started."""
        try:
            first = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        except OSError:  # it has just ended
            first = []
        process.kill()
        process.communicate()
        while any(pathlib.Path(f"/proc/{one}").exists() for one in first):  # it ends last
            time.sleep(0.001)
        return process.returncode, {}

    def p2pctl(self, *words, killed_after=1800, live=False):
        return self.finish(self.start(*words, live=live), killed_after)

    def plan(self, steps, proof=False, policy=None):
        """A plan of these steps, each (action, parameters) or (probe, None) and after those before, where p2pctl sees it; `proof` adds
        one that cannot hold, so that nothing is made permanent."""
        rows = [{"gate": name, "title": name, "check": CHECKS.get(name, name), **({} if given is None else {"fix": name, "with": given})}
                for name, given in steps]
        if proof:
            rows.append({"gate": "proof", "title": "proof", "check": "modprobe-options", "with": {"module": "proof", "options": {"never": 1}}})
        for number, row in enumerate(rows):  # all of them: a step that holds already does not make later steps wait for those before it
            row["after"] = [before["gate"] for before in rows[:number]]
        policy = {"attempts": 1, "on_failure": "keep", "reboot": "external", **(policy or {})}
        path = self.work.parent / "program" / f"{self.name}.yaml"
        path.write_text(json.dumps({"name": "test", "title": "test", "policy": policy, "steps": rows}))
        return path

    def apply(self, steps, proof=False, live=False, policy=None):
        return self.p2pctl("apply", self.plan(steps, proof, policy), live=live)

    def boot(self, arguments=None):
        """Boots as GRUB would: the one-time entry if one is chosen, else the default of grub.cfg."""
        if arguments is None:
            line = re.search(r"(?m)^\s+linux\s+\S+ (.*)$", (self.path / "boot/grub/grub.cfg").read_text())[1]
            arguments = line.replace("\\", "").strip()
            if "next_entry=p2pd-trial\n" in (self.path / "boot/grub/grubenv").read_text():
                arguments += f" {noted(self.path / 'boot/grub/custom.cfg')} p2pd.trial=1 panic=30"
                self.run("grub-editenv", "/boot/grub/grubenv", "set", "next_entry=")
        # written in place: a mount of the file would keep showing an older one
        (self.work / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.work / "cmdline").write_text(arguments + "\n")

    def boots_still(self):
        """Checks that the machine would boot now, where that can be told before the end."""

    def with_grub(self):
        """Makes a menu and an environment, as on a machine that booted."""
        self.run("sh", "-c", "grub-mkconfig -o /boot/grub/grub.cfg && grub-editenv /boot/grub/grubenv create")
        self.boot()

    # ---- contents

    def file(self, path):
        return self.path / path.lstrip("/")

    def installed(self):
        out = self.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n")
        return {line.split()[0] for line in out.splitlines() if line.split()[1] in ("ii", "hi")}

    def loaded(self, module):
        """Path of the module that modprobe would load."""
        return self.enter("modinfo", "-k", self.kernel, "-F", "filename", module)[1].strip()

    def in_images(self):
        """Contents of the initramfs images."""
        return {image.name: self.run("lsinitramfs", f"/boot/{image.name}") for image in sorted(self.path.glob("boot/initrd.img-*"))}

    def srcversion(self, module):
        return self.enter("modinfo", "-k", self.kernel, "-F", "srcversion", module)[1].strip()

    def staged(self):
        return json.loads(next(self.file("/var/cache/p2pd/builds").glob("*/build.json")).read_text())["modules"]

    # ---- differences

    def touched(self):
        """Paths below which something was written."""
        found = []
        for upper, (folder, names, files) in ((upper, row) for upper in self.uppers for row in os.walk(upper)):
            for name in names + files:
                path = pathlib.Path(folder, name)
                found.append(path.relative_to(upper))
                if path.is_dir() and not path.is_symlink() and "trusted.overlay.opaque" in os.listxattr(path):
                    lower = self.before / found[-1]
                    found += [below.relative_to(self.before) for below in lower.rglob("*")]
        return set(found)

    def snapshot(self, times=False):
        """The state of the paths that were touched so far, for differences()."""
        return {name: entry(self.path / name, times) for name in self.touched()}

    def differences(self, wanted=None, when=(), without=()):
        """One line for each path at which it differs from `wanted`: another tree on the same folder, a snapshot of its own, or
        None: its state before. `when`: lines of not_compared that count; `without`: more globs."""
        other = wanted if isinstance(wanted, Tree) else None
        was_at = wanted if isinstance(wanted, dict) else {}
        told = []
        for name in sorted(self.touched() | (other.touched() if other else was_at.keys())):
            if not compared(name, when, without):
                continue
            was = was_at[name] if name in was_at else entry((other.path if other else self.before) / name)
            now = entry(self.path / name)
            if now != was:
                told.append(f"/{name}: is {str(now)[:300]}, was {str(was)[:300]}")
        if "packages" in when:
            now, was = (records(root, "/var/lib/dpkg/status" in without) for root in (self.path, other.path if other else self.before))
            told += [f"{key}: is {one!r}" for key in now for one in now[key] if one not in was[key]]
            told += [f"{key}: was {one!r}" for key in now for one in was[key] if one not in now[key]]
        return told

    def same(self, wanted=None, when=(), without=()):
        found = self.differences(wanted, when, without)
        need(not found, "\n".join(found[:20]))

    def close(self):
        deadline = time.monotonic() + 60  # the kernel unmounts with a delay after processes there were killed
        while subprocess.run(["umount", self.path], check=False, stderr=subprocess.DEVNULL).returncode:
            need(time.monotonic() < deadline, f"{self.path} stays busy")
            time.sleep(0.1)
        shutil.rmtree(self.work)


class Cases:
    """Prints "ok NAME" or "FAIL NAME" for each."""

    def __init__(self):
        self.failed = 0

    def say(self, name, error=None):
        self.failed += error is not None
        print(f"ok {name}" if error is None else f"FAIL {name}\n    " + str(error)[-3000:].replace("\n", "\n    "), flush=True)

    def runs(self, name, test):
        """Runs `test`, which raises an exception if it fails; True if it passes."""
        try:
            test()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            self.say(name, error)
            return False
        self.say(name)
        return True

    def run(self, functions, only, tree_for):
        """Runs functions case_NAME(tree) of a script, each on a tree of its own; `only`: names to run, all if it is empty."""
        unknown = [name for name in only if f"case_{name}" not in functions]
        if unknown:
            raise SystemExit(f"no case is called {unknown[0]}")
        for name, case in list(functions.items()):
            if name.startswith("case_") and (not only or name[5:] in only):
                tree = tree_for(name)
                self.runs(name[5:].replace("_", " "), lambda case=case, tree=tree: case(tree))
                tree.close()


def run_cases(functions, *grounds, ground_of=lambda name: 0):
    """Exit status of a script of cases. Each runs on an overlay of a tree that one of `grounds` made of the script's root: that of the
    number which `ground_of` gives for the function's name."""
    root, work, only = arguments()
    trees, cases = [Tree(work, f"ground-{number}", root) for number in range(len(grounds))], Cases()
    for tree, make in zip(trees, grounds):
        make(tree)
    cases.run(functions, only, lambda name: Tree(work, name, trees[ground_of(name)]))
    return 1 if cases.failed else 0
