# SPDX-License-Identifier: MIT
"""No compiler for C++: apt installs one, and the modules are built."""
from expected import expect_ready
from scenario import expect

STARTS = "delivered"
CARDS = "two-behind-switch"
SEED = {"/root/seed": (0o755, "#!/bin/sh\nrm -f /usr/bin/g++ /usr/bin/g++-12\ndpkg --purge --force-depends g++ g++-12\n")}


def run(machine):
    machine.offer_packages(["g++", "g++-12", "libstdc++-12-dev"])
    before = machine.packages()
    status = machine.apply("ready")
    expect_ready(machine, status)
    brought = [line for line in machine.packages() if line not in before and line.startswith("g++")]
    expect(brought, "apt brought no compiler")
