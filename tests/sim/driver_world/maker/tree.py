# SPDX-License-Identifier: MIT
"""Files as a table: path to text or bytes, to ("program", content), or to ("link", target). Nothing depends on when or where."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile

EPOCH = 1737752794  # seconds; 2025-01-24 21:06:34 UTC, when 570.86.16 was built


def split(entry):
    """An entry as (kind, content): "file", "program" or "link"; content is bytes, or the target of a link."""
    kind, content = entry if isinstance(entry, tuple) else ("file", entry)
    return kind, content if kind == "link" or isinstance(content, bytes) else content.encode()


def write(folder, files):
    for name, entry in files.items():
        path = folder / name
        kind, content = split(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(content)
            continue
        path.write_bytes(content)
        path.chmod(0o755 if kind == "program" else 0o644)


def read(folder):
    """The files below a folder as a table."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            files[name] = ("link", os.readlink(path))
        elif path.is_file():
            files[name] = ("program", path.read_bytes()) if path.stat().st_mode & 0o111 else path.read_bytes()
    return files


def below(prefix, files):
    return {f"{prefix}/{name}": entry for name, entry in files.items()}


def tar_gz(files):
    """A compressed archive of a table; folders are made by whoever unpacks."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=EPOCH) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, entry in sorted(files.items()):
            kind, content = split(entry)
            member = tarfile.TarInfo(name)
            member.mtime, member.mode = EPOCH, 0o755 if kind == "program" else 0o644
            if kind == "link":
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def run(argv, **options):
    """Output of a tool; it must succeed, and runs with a fixed locale and time."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(EPOCH), **options.pop("env", {})}
    done = subprocess.run([str(word) for word in argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"make: {' '.join(map(str, argv))}: status {done.returncode}\n{done.stdout.decode(errors='replace')}")
    return done.stdout
