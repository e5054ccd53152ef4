# SPDX-License-Identifier: MIT
"""A machine as a directory tree: where the records lie, what must be equal about two trees, and a reboot as p2pd sees it.

P2PD_BUILD: the build directory; build/dev unless told.
"""
import fnmatch
import hashlib
import os
import pathlib
import re
import stat
import tempfile
import uuid

TESTS = pathlib.Path(__file__).resolve().parents[1]
MACHINES = pathlib.Path(os.environ.get("P2PD_BUILD") or TESTS.parent / "build/dev").resolve() / "machines"
COMMAND_LINE = "proc/cmdline"
BOOT_ID = "proc/sys/kernel/random/boot_id"


def write(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def picture(tree):
    """Path to (kind and mode, owner, group, extended attributes, content); what a boot changes is left out."""
    seen = {}
    for path in [tree, *sorted(tree.rglob("*"))]:
        name = str(path.relative_to(tree))
        if name in (COMMAND_LINE, BOOT_ID):
            continue
        info = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        xattrs = {key: os.getxattr(path, key, follow_symlinks=False)
                  for key in os.listxattr(path, follow_symlinks=False)}
        seen[name] = (oct(info.st_mode), info.st_uid, info.st_gid, xattrs, content)
    return seen


def differences(seen, wanted):
    """One paragraph for each path at which two pictures differ."""
    def told(one):
        return "absent" if one is None else f"{one[:4]} {one[4][:400]!r}"
    return "".join(f"    {name}\n      is     {told(seen.get(name))}\n      wanted {told(wanted.get(name))}\n"
                   for name in sorted(seen.keys() | wanted.keys()) if seen.get(name) != wanted.get(name))


def not_compared():
    """Globs by when they count."""
    globs = {"always": [], "apt": [], "packages": [], "walks": []}
    for line in (TESTS / "world/not_compared").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            glob, when, _ = line.split(None, 2)
            globs[when].append(glob)
    return globs


NOT_COMPARED = not_compared()


def compared(path, when=(), without=()):
    """Checks that a path, relative to its tree, is compared: `when` selects lines of not_compared, `without` gives more globs."""
    globs = [*(glob for key in ("always", *when) for glob in NOT_COMPARED[key]), *without]
    return not any(fnmatch.fnmatchcase(f"/{path}", glob) or fnmatch.fnmatchcase(f"/{path}", glob + "/*") for glob in globs)


def entry(path, times=False):
    """Kind and mode, owner, group, extended attributes, content (a big file's SHA-256), for `times` when it was written; None
    where nothing is."""
    try:
        info = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(info.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(info.st_mode):
        content = path.read_bytes()
        if len(content) > 400:
            content = "SHA-256 " + hashlib.sha256(content).hexdigest()
    else:
        content = info.st_rdev if stat.S_ISCHR(info.st_mode) else ""
    xattrs = {key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
              if not key.startswith("trusted.overlay.")}
    written = (info.st_mtime_ns,) if times and not stat.S_ISDIR(info.st_mode) else ()
    return oct(info.st_mode), info.st_uid, info.st_gid, xattrs, content, *written


def paragraphs(text):
    return sorted(part.strip() for part in text.split("\n\n") if part.strip())


def records(root, without_sums=False):
    """dpkg's and apt's files that are compared by what they mean."""
    status = paragraphs((root / "var/lib/dpkg/status").read_text())
    if without_sums:
        status = [re.sub(r"(?m)^ /.* \w{32}\n", "", part) for part in status]
    diversions = (root / "var/lib/dpkg/diversions").read_text().splitlines()
    return {"status": status, "diversions": sorted(zip(*[iter(diversions)] * 3)),
            "automatic": [part for part in paragraphs((root / "var/lib/apt/extended_states").read_text()) if "Auto-Installed: 1" in part]}


def noted(path):
    """The kernel arguments that a file of p2pd says it carries."""
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("# arguments:")), "")


def boot(tree, arguments=None):
    """A new boot id, and a command line: what p2pd's drop-in carries unless told."""
    if arguments is None:
        arguments = noted(tree / "etc/default/grub.d/zz-p2pd.cfg")
    write(tree / BOOT_ID, f"{uuid.uuid4()}\n")
    write(tree / COMMAND_LINE, f"root=/dev/vda ro {arguments}\n")


def scratch_directory(prefix):
    """In memory where that takes extended attributes and programs: tests of durability sync all the time."""
    for directory in ("/dev/shm", None):
        if directory and (not os.path.isdir(directory) or os.statvfs(directory).f_flag & os.ST_NOEXEC):
            continue
        found = tempfile.TemporaryDirectory(prefix=prefix, dir=directory)
        try:
            os.setxattr(found.name, "user.test", b"1")
            return found
        except OSError:
            found.cleanup()
    raise SystemExit("no directory for temporary files takes extended attributes")
