# SPDX-License-Identifier: MIT
"""Runs Python in the context of another process: its namespaces, its user, no capability, no way to get one.

Nothing is started there, so what that context lets be executed does not matter. System call filters do not come along: what is
refused here is refused by namespaces and by the user alone.
"""
import ctypes
import json
import os
import pathlib
import socket

NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt")
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 38, 24, 28
NOROOT = 0b11  # SECBIT_NOROOT, locked
LIBC = ctypes.CDLL(None, use_errno=True)
MARK = ".written-from-p2pd"


def done(status, what):
    if status != 0:
        raise OSError(ctypes.get_errno(), what)


def inside(pid, test):
    """What test(), called in that context of a process, returns; anything that JSON can carry."""
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
            if (grandchild := os.fork()) == 0:  # only a child is in the other namespace of processes
                become(uid, gid, groups)
                os.write(write, json.dumps(test()).encode())
                code = 0
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        except BaseException as error:  # this process must not go on as the script
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
    os.setresuid(uid, uid, uid)  # takes the capabilities along
    done(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


# ---- what is tried there ----------------------------------------------------------------------------------------------

def writable():
    """Where a file could be written, or is one that can be changed, outside /proc and /sys. Marks are left in the folders."""
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
    """Those of the files that open for writing."""
    found = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))
            found.append(path)
        except OSError:
            pass
    return found


def connectable(sockets):
    """Those of the sockets, path and type, that take a connection."""
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
    """Those of the processes that a signal could be sent to."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, 0)
            found.append(pid)
        except OSError:
            pass
    return found


def sockets_of(pid):
    """The UNIX sockets with a path that wait for somebody where a process is: path and type."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    waits = [(row[7], int(row[4], 16)) for row in rows if len(row) == 8 and (int(row[3], 16) & 0x10000 or row[4] == "0002")]
    return sorted({(path, kind) for path, kind in waits if path.startswith("/")})
