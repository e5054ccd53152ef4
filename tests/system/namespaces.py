# SPDX-License-Identifier: MIT
"""Private namespaces of a script, which end with all that it mounted or started; and Python code in those of another process.

There it has that process's user, no capability, no way to get one. It starts no program, so the context's execution rights do
not matter. System call filters are not applied: only the namespaces and the user restrict it.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

CGROUPS = [path for path in map(pathlib.Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"))
           if (path / "cgroup.procs").exists()]
OURS = "p2pd-systemd-"  # cgroups, with the process id of the script behind it
NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt")
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 38, 24, 28
NOROOT = 0b11  # SECBIT_NOROOT, locked
LIBC = ctypes.CDLL(None, use_errno=True)
MARK = ".written-from-p2pd"


# ---- a script's own: nothing is left behind ---------------------------------------------------------------------------

def remove_cgroup(path):
    """Removes a cgroup with those below it; its processes are dead or dying."""
    deadline = time.monotonic() + 5
    while path.exists():
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01 if path.exists() else 0)


def remove_cgroups(of=None):
    """Removes those of the script with a process id; else those of scripts that have ended."""
    for path in (path for folder in CGROUPS for path in folder.glob(f"{OURS}*")):
        pid = path.name[len(OURS):]
        if pid == str(of) or of is None and not pathlib.Path("/proc", pid).exists():
            remove_cgroup(path)


def arguments(network=False):
    """The tree that the command line names, a folder to work in, and the other words; in namespaces of this script's own, with
    `network` in a network of its own, too."""
    if len(sys.argv) < 2:
        raise SystemExit(sys.modules["__main__"].__doc__)
    root = pathlib.Path(sys.argv[1]).resolve()
    if not (root / "srv/archive").is_dir():
        raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: {root} is no tree made by root")
    if "SYSTEMD_TESTS_CGROUP" not in os.environ:
        raise SystemExit(again_in_namespaces(["--net"] if network else []))
    if network:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # in memory, in our own mounts: nothing is left behind; systemd-nspawn writes there, too
    place = pathlib.Path("/run/systemd")
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
    return root, place / "tests", sys.argv[2:]


def again_in_namespaces(more):
    """The exit status of this script, run with mounts and processes of its own."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    remove_cgroups()
    # the shell is process 1 of them, and reaps orphans: a machine does not shut down while it has a zombie
    inner = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                              "--kill-child", "--mount-proc", *more, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.argv],
                             env={**os.environ, "SYSTEMD_TESTS_CGROUP": OURS + str(os.getpid())})
    try:
        return inner.wait()
    finally:
        inner.kill()
        inner.wait()
        remove_cgroups(os.getpid())


# ---- the context of another process ------------------------------------------------------------------------------------

def done(status, what):
    if status != 0:
        raise OSError(ctypes.get_errno(), what)


def inside(pid, test):
    """Return value of test(), called in the context of process `pid`; any value that JSON can represent."""
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    uid, gid = int(status["Uid"].split()[0]), int(status["Gid"].split()[0])
    groups = [int(group) for group in status["Groups"].split()]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            enter(pid)
            if (grandchild := os.fork()) == 0:  # only a child enters the other PID namespace
                become(uid, gid, groups)
                os.write(write, json.dumps(test()).encode())
                code = 0
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        except BaseException as error:  # the forked process must not continue as the script
            os.write(write, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        told = stream.read()
    os.waitpid(child, 0)
    answer = json.loads(told or b'{"error": "it said nothing"}')
    if isinstance(answer, dict) and "error" in answer:
        raise OSError(answer["error"])
    return answer


def enter(pid):
    opened = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
    for descriptor in opened:
        done(LIBC.setns(descriptor, 0), "setns")
        os.close(descriptor)
    os.chdir("/")


def become(uid, gid, groups):
    for capability in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # those that this kernel knows
    done(LIBC.prctl(PR_SET_SECUREBITS, NOROOT, 0, 0, 0), "securebits")
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # drops the capabilities, too
    done(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


# ---- attempts ---------------------------------------------------------------------------------------------------------

def writable():
    """Folders where a file can be created, and files that can be changed, outside /proc and /sys. Leaves marks in the folders."""
    found = []
    for folder, names, files in os.walk("/"):
        if folder == "/":
            names[:] = [name for name in names if name not in ("proc", "sys")]
        if os.access(folder, os.W_OK):
            try:
                os.close(os.open(os.path.join(folder, MARK), os.O_CREAT | os.O_WRONLY))
                found.append(os.path.join(folder, MARK))
            except OSError:
                pass
        found += [path for path in (os.path.join(folder, name) for name in files)
                  if os.path.isfile(path) and not os.path.islink(path) and os.path.basename(path) != MARK and os.access(path, os.W_OK)]
    return found


def opened_for_writing(paths):
    """The files that open for writing."""
    found = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))
            found.append(path)
        except OSError:
            pass
    return found


def connectable(sockets):
    """The sockets, path and type, that accept a connection."""
    found = []
    for path, kind in sockets:
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.settimeout(2)
            try:
                one.connect(path)
                found.append(path)
            except OSError:
                pass
    return found


def signalled(pids):
    """The processes that a signal could be sent to."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, 0)
            found.append(pid)
        except OSError:
            pass
    return found


def sockets_of(pid):
    """The listening UNIX sockets with a path in the namespaces of a process: path and type."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    waits = [(row[7], int(row[4], 16)) for row in rows if len(row) == 8 and (int(row[3], 16) & 0x10000 or row[4] == "0002")]
    return sorted({(path, kind) for path, kind in waits if path.startswith("/")})
