# SPDX-License-Identifier: MIT
"""The disks that scenarios begin with: those that `machine` makes, and what a scenario left behind for others."""
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DELIVERED = "delivered"
MADE = (DELIVERED, "applied")


class Store:
    """Folders with disk.raw (or disk.qcow2) and id, by the name of what made them."""

    def __init__(self, build, wanted):
        self.build, self.wanted = build, wanted - set(MADE)
        self.scratch, self.folders, self.views = None, {}, {}

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="p2pd-disks.")
        return self

    def __exit__(self, *_):
        self.scratch.cleanup()

    def folder(self, start):
        if start in MADE and start not in self.folders:
            made = subprocess.run([HERE / "machine", self.build, start], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
            self.folders[start] = pathlib.Path(made)
        return self.folders[start]

    def missing(self, known, names):
        """What these scenarios begin with, and is not among them."""
        return [known[name].STARTS for name in names if known[name].STARTS not in (*MADE, *names)]

    def keep(self, name, machine):
        """The disk of a machine as it is now, switched off, for scenarios that begin with it."""
        machine.power_off()
        folder = pathlib.Path(self.scratch.name, name)
        folder.mkdir()
        machine.path("disk.qcow2").rename(folder / "disk.qcow2")
        for other in machine.machine.iterdir():
            if not other.name.startswith("disk."):
                (folder / other.name).symlink_to(other)
        self.folders[name] = folder
