# SPDX-License-Identifier: MIT
"""The disks that scenarios begin with: those that `machine` makes, and what a scenario left behind for others."""
import pathlib
import pickle
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DELIVERED = "delivered"
MADE = (DELIVERED, "applied")
SYSTEMS = sorted(path.name for path in (HERE / "systems").iterdir())  # the first is Debian 12


class Store:
    """Folders with disk.raw (or disk.qcow2) and id, by the name of what made them; processes that are forked from its own share it."""

    def __init__(self, build, system=SYSTEMS[0]):
        self.build, self.system, self.scratch = build, system, None

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="p2pd-disks.")
        return self

    def __exit__(self, *_):
        self.scratch.cleanup()

    def folder(self, start):
        if start in MADE:
            made = subprocess.run([HERE / "machine", self.build, start, self.system], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
            return pathlib.Path(made)
        return pathlib.Path(self.scratch.name, start)

    def notes(self, start):
        """What was noted about the machine that was kept there."""
        path = pathlib.Path(self.scratch.name, start, "notes")
        return pickle.loads(path.read_bytes()) if path.exists() else {}

    def keep(self, name, machine):
        """The disk of a machine as it is now, switched off, for scenarios that begin with it; its notes, and what was written on
        the way if that was logged."""
        machine.power_off()
        folder = pathlib.Path(self.scratch.name, name)
        folder.mkdir()
        for file in ("disk.qcow2", "writes"):
            if machine.path(file).exists():
                machine.path(file).rename(folder / file)
        for other in machine.machine.iterdir():
            if not other.name.startswith("disk."):
                (folder / other.name).symlink_to(other)
        (folder / "notes").write_bytes(pickle.dumps(machine.notes))
