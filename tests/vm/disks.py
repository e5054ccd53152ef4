# SPDX-License-Identifier: MIT
"""Disks that scenarios start from: those that `machine` makes, and those that a scenario leaves for others."""
import contextlib
import pathlib
import pickle
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DELIVERED = "delivered"
MADE = (DELIVERED, "applied")
SYSTEMS = sorted(path.name for path in (HERE / "systems").iterdir())  # the first is Debian 12


def link_others(machine, folder):
    """Links the files of a machine's folder other than its disk and what is there already."""
    for other in machine.iterdir():
        if not other.name.startswith("disk.") and not (folder / other.name).exists():
            (folder / other.name).symlink_to(other)


class Store:
    """Folders with disk.raw (or disk.qcow2) and id, by the name of their maker; kept in `place`, by system, if it is given."""

    def __init__(self, build, system=SYSTEMS[0], place=None):
        self.build, self.system, self.ends = build, system, contextlib.ExitStack()
        self.place = place / system if place else None

    def __enter__(self):
        if self.place:
            self.place.mkdir(parents=True, exist_ok=True)
        else:
            self.place = pathlib.Path(self.ends.enter_context(tempfile.TemporaryDirectory(prefix="p2pd-disks.")))
        return self

    def __exit__(self, *_):
        self.ends.close()

    def has(self, start):
        return start in MADE or (self.place / start / "notes").exists()

    def folder(self, start):
        if start in MADE:
            made = subprocess.run([HERE / "machine", self.build, start, self.system], check=False, stdout=subprocess.PIPE, text=True)
            if made.returncode:
                raise SystemExit(made.returncode)  # `machine` has printed the reason
            return pathlib.Path(made.stdout.strip())
        return self.place / start

    def notes(self, start):
        """Notes on the machine whose disk is kept under that name; {} if there are none."""
        path = self.place / start / "notes"
        return pickle.loads(path.read_bytes()) if path.exists() else {}

    def keep(self, name, machine):
        """Stores the disk of a machine, switched off, for scenarios that start from it; then the log of its writes, if
        there is one; its notes come last: a disk without notes does not count as stored."""
        machine.power_off()
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in (machine.path("disk.qcow2"), *machine.path(".").glob("writes"), *machine.path(".").glob("variables*")):
            shutil.move(file, folder / file.name)
        link_others(machine.machine, folder)
        (folder / "notes").write_bytes(pickle.dumps(machine.notes))
