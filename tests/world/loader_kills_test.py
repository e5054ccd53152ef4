#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""loader_kills_test.py ROOT [--sample K] [--jobs J] [MACHINE]...: the kills of own_kills_test.py, where systemd-boot starts the machine.

Fix kernel-cmdline on machines of loaders.py: trial, proof and revert. What boots right after each kill must be whole: the kernel and the
initrd of an entry with the arguments of before, of the trial if it is chosen, or the new ones. ROOT is that of loaders_test.py. Signed
images are left out: a signature has the time in it. Needs root.
"""
import re
import sys
import time

sys.dont_write_bytecode = True
from loaders_test import STEPS, asked  # noqa: E402
from own_kills_test import asker, of_row, totals  # noqa: E402


def main():
    began = time.monotonic()
    grounds, machines, work, words = asked()
    chosen, sweeps = asker().parse_args(words), []
    for name in machines:
        if "signed" not in name and (not chosen.actions or name in chosen.actions):
            row = (*STEPS[0], name, ())
            sweeps += of_row(work, grounds.__getitem__, row, chosen, re.sub(r"\W+", "-", name) + "-kills")
    return totals(sweeps, began)


if __name__ == "__main__":
    sys.exit(main())
