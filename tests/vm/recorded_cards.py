# SPDX-License-Identifier: MIT
"""The topology (topology.py) of a recorded machine: its cards, the switches above them, its sockets and whose IOMMU it has.

What it reads: lspci-xxxx.txt (configuration space), and sysfs `resource` and `numa_node` of the cards. Of a switch of several stages
the stages are left out: its cards hang at one.
"""
import pathlib
import re

from topology import CHIPS, TopologyError

GIB = 1 << 30
DISPLAY, BRIDGE = (0x0300, 0x0302), 0x0604
EXPRESS, REBAR = 0x10, 0x15
ROOT_PORT = 4
MAKERS = {0x8086: "intel", 0x1022: "amd"}


class Function:
    def __init__(self, address, config):
        self.address, self.config = address, config

    def word(self, at, size=2):
        return int.from_bytes(self.config[at:at + size], "little")

    vendor, device, kind = (property(lambda self, at=at: self.word(at)) for at in (0, 2, 10))

    def capability(self, wanted):
        at, seen = self.word(0x34, 1), set()
        while at >= 0x40 and at not in seen:
            seen.add(at)
            if self.word(at, 1) == wanted:
                return at
            at = self.word(at + 1, 1)
        return None

    def extended(self, wanted):
        at = 0x100
        while at and at + 4 <= len(self.config):
            head = self.word(at, 4)
            if head & 0xFFFF == wanted:
                return at
            at = head >> 20
        return None

    def is_above(self, other):
        domain, bus = other.address.split(":")[:2]
        return (self.kind == BRIDGE and self.address.startswith(domain) and
                self.config[0x19] <= int(bus, 16) <= self.config[0x1A])

    def port_type(self):
        at = self.capability(EXPRESS)
        return None if at is None else self.word(at + 2) >> 4 & 0xF


def functions(text):
    found = []
    for line in text.splitlines():
        if head := re.match(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", line):
            address = head[1] if head[1].count(":") == 2 else f"0000:{head[1]}"
            found.append(Function(address, bytearray()))
        elif found and re.match(r"[0-9a-f]{2,3}: ", line):
            found[-1].config += bytes.fromhex(line.split(":", 1)[1])
    return found


def card_of(function, folder):
    device = f"{function.device:04x}"
    if device not in CHIPS:
        raise TopologyError(f"{function.address} is 10de:{device}; there are simulated cards for {', '.join(sorted(CHIPS))}")
    lines = (folder / "resource").read_text().split("\n")
    start, end = (int(word, 16) for word in lines[1].split()[:2])
    card = {"device": device, "bar1_gib": (end - start + 1) / GIB, "bar1_most_gib": 0}
    card["bar1_most_gib"] = bar1_most(function) / GIB
    if card["bar1_gib"] < card["bar1_most_gib"]:
        card["narrow"] = True  # firmware left it so: the windows above it have no more room
    express = function.capability(EXPRESS)
    if express is not None:  # an idle card lowers its speed, never its width
        card["link"] = [min(max(function.word(express + 0x0C) & 0xF, 1), 4), function.word(express + 0x12) >> 4 & 0x3F or 16]
    return card


def bar1_most(function):
    """The largest size that Resizable BAR offers for BAR1, in bytes; 0 where it offers none."""
    at = function.extended(REBAR)
    if at is None:
        return 0
    count = function.word(at + 8, 4) >> 5 & 7
    entries = [(function.word(at + 8 + 8 * i, 4) & 7, function.word(at + 4 + 8 * i, 4) >> 4) for i in range(count)]
    return max((1 << (sizes.bit_length() - 1 + 20) for bar, sizes in entries if bar == 1 and sizes), default=0)


def topology_of(record):
    """As a topology file has it."""
    record = pathlib.Path(record)
    try:
        found = functions((record / "lspci-xxxx.txt").read_text())
    except OSError as error:
        raise TopologyError(f"{record} is no machine record: {error}") from error
    maker = next((MAKERS[f.vendor] for f in found if f.kind == 0x0600 and f.vendor in MAKERS), "intel")
    sockets, switches = {}, {}
    for function in (f for f in found if f.vendor == 0x10DE and f.kind in DISPLAY):
        folder = record / "sys/bus/pci/devices" / function.address
        card = {"gpu": card_of(function, folder)}
        node = folder / "numa_node"
        ports = sockets.setdefault(max(int(node.read_text()) if node.exists() else 0, 0), [])
        above = [f for f in found if f.is_above(function) and f.port_type() not in (None, ROOT_PORT)]
        if not above:
            ports.append(card)
            continue
        top = min(above, key=lambda f: f.config[0x19]).address
        if top not in switches:
            switches[top] = {"switch": []}
            ports.append(switches[top])
        switches[top]["switch"].append(card)
    if not sockets:
        raise TopologyError(f"{record} has no NVIDIA card")
    iommu = maker if (record / "sys/kernel/iommu_groups").is_dir() else None
    return {"title": f"the cards of {record.name}", "iommu": iommu, "sockets": [sockets[node] for node in sorted(sockets)]}
