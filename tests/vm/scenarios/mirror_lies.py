# SPDX-License-Identifier: MIT
"""A mirror that serves another file under the runfile's name: it is never run, and the old driver stays."""
import contextlib
import pathlib
import subprocess
import urllib.request

from expected import expect_driver_kept
from scenario import catalogue_edit, expect

STARTS = "delivered"
CARDS = "two-ports"
MIRROR = "10.0.2.100:80"
SEED = catalogue_edit(f"s#file:///srv/driver-world/http#http://{MIRROR}#")
SERVE = pathlib.Path(__file__).resolve().parents[2] / "sim/driver_world/serve"


@contextlib.contextmanager
def around(machine):
    """The mirror, on this host: the driver world's runfiles, one byte of each wrong."""
    folder = machine.machine / "world/http"
    with subprocess.Popen([SERVE, folder], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            for path in folder.rglob("*.run"):
                urllib.request.urlopen(f"{address}/-/fault?path=/{path.relative_to(folder)}&wrong=1000").close()
            machine.servers[MIRROR] = int(address.rsplit(":", 1)[1])
            yield
        finally:
            server.terminate()


def run(machine):
    with expect_driver_kept(machine):
        status = machine.apply("failed")
        expect("SHA-256" in status["reason"], status["reason"])
