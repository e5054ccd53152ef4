# SPDX-License-Identifier: MIT
"""Answers of NVIDIA's driver about the GPUs of a made machine: in /proc, and to "p2p-bench --driver-peers"."""

import json

from .cards import A100, A100_SXM, H100_SXM, L40S, RTX2080TI, RTX3090, RTX4090, RTX5090, RTXA6000, RTXPRO6000
from .config_space import MIB
from .installed import PATCHED, information

TOLD = {  # name and MiB of VRAM, as the driver has them
    A100: ("NVIDIA A100 80GB PCIe", 81920), A100_SXM: ("NVIDIA A100-SXM4-80GB", 81920),
    H100_SXM: ("NVIDIA H100 80GB HBM3", 81559), L40S: ("NVIDIA L40S", 46068),
    RTX2080TI: ("NVIDIA GeForce RTX 2080 Ti", 11264), RTX3090: ("NVIDIA GeForce RTX 3090", 24576),
    RTX4090: ("NVIDIA GeForce RTX 4090", 24564), RTX5090: ("NVIDIA GeForce RTX 5090", 32607),
    RTXA6000: ("NVIDIA RTX A6000", 49140), RTXPRO6000: ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887)}


def command(argv, output, status=0, errors=""):
    return json.dumps({"argv": argv, "status": status, "output": output, "errors": errors}, indent=2) + "\n"


def informations(*gpus, version=PATCHED):
    files = {}
    for minor, (address, model) in enumerate(gpus):
        files |= information(TOLD[model][0], address, minor, version)
    return files


def driver_says(*gpus, refused=(), word="GNS", nvlink=False, topology="NODE", small=(), bridges=(), refused_between=None):
    """The answer for `gpus`, each (address, model): OK, but `word` for each pair with one of `refused`, and "NS" for the
    two addresses that `refused_between` is true for. `small`: those of 256 MiB of BAR1;
    `bridges`: pairs of addresses with NVLink, which are OK in any case."""
    told = [{"address": address, "persistence": False, "bar1_bytes": 256 * MIB if address in small else model.largest_bar1,
             "vram_bytes": TOLD[model][1] * MIB, "generation": model.speed if nvlink else 1, "generation_most": model.speed,
             "width": model.width, "width_most": model.width} for address, model in gpus]
    pairs = []
    for one in told:
        for other in told:
            if one is not other:
                joined = nvlink or {one["address"], other["address"]} in [set(pair) for pair in bridges]
                apart = refused_between is not None and refused_between(one["address"], other["address"])
                status = "OK" if joined else word if {one["address"], other["address"]} & set(refused) else "NS" if apart else "OK"
                pairs.append({"from": one["address"], "to": other["address"], "read": status, "write": status,
                              "nvlink": "OK" if joined else "NS", "atomics": "OK" if joined else "NS", "topology": topology})
    lines = ",\n  ".join(json.dumps(gpu) for gpu in told), ",\n  ".join(json.dumps(pair) for pair in pairs)
    output = f'{{"schema": "p2pd.driver-peers/1",\n "gpus": [\n  {lines[0]}],\n "pairs": [\n  {lines[1]}]}}\n'
    return {"commands/p2p-bench-driver-peers.json": command(["p2p-bench", "--driver-peers"], output)}


def answers(*gpus, version=PATCHED, **options):
    """Both of a driver that drives all of `gpus`."""
    return informations(*gpus, version=version) | driver_says(*gpus, **options)
