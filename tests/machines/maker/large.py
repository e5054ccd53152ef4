# SPDX-License-Identifier: MIT
"""A machine as large as they come, to time doctor on: ten GPUs below five switches, among 300 functions."""

from .cards import RTX4090
from .cases import IVHD, card, epyc, port
from .driver_answer import informations
from .installed import installed, kernel_log, load_lines
from .machines import Machine, nvme
from .topology import PEX88096_DOWN, PEX88096_UP, Bridge

SWITCHES, GPUS_EACH, DISKS_EACH = 5, 2, 28


def large():
    downs = [[port(f"{slot:02x}.0", card() if slot < GPUS_EACH else [nvme()], PEX88096_DOWN, slot)
              for slot in range(GPUS_EACH + DISKS_EACH)] for _ in range(SWITCHES)]
    roots = [port(f"{number:02x}.1", [Bridge("00.0", PEX88096_UP, *below, link=(4, 16))], number=number)
             for number, below in enumerate(downs, 1)]
    # buses: a root port's, the switch's, then one for each of its ports
    first = [3 + (2 + GPUS_EACH + DISKS_EACH) * switch for switch in range(SWITCHES)]
    cards = [f"0000:{bus + n:02x}:00.0" for bus in first for n in range(GPUS_EACH)]
    return Machine("large", "Ten RTX 4090 among 300 functions", "no machine: a size", epyc(*roots), "identity",
                   installed() | informations(*((address, RTX4090) for address in cards)) | IVHD | kernel_log(*load_lines()), None,
                   "made to be timed", [], False)
