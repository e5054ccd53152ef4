# SPDX-License-Identifier: MIT
"""The PCI bus of a guest: turns an entry of topologies.json, or the cards of a machine record, into arguments of QEMU.

    {"title": "...", "iommu": "intel",
     "sockets": [[{"gpu": {}}, {"switch": [{"gpu": {}}, {"gpu": {"device": "2204", "bar1_gib": 0.25}}]}]]}

`iommu` is intel, amd or null; it also selects the vendor of the guest's CPU. Each of `sockets` is a list of root ports: a card, or a
switch with a card on each of its ports. Keys of a card: `device` (PCI id; 2684, an RTX 4090), `bar1_gib` that firmware sets (32),
`bar1_most_gib` to which it can be resized (32; 0: not resizable), `link` [generation, lanes] ([4, 16]).
A card on a root port whose BAR1 is smaller than its maximum has room for the maximum in the window above, unless `"narrow": true`.
`hole_gib`: address space of the root bus above 4 GiB; by default what firmware hands out and little more.

Of a machine record it reads lspci-xxxx.txt (configuration space), and sysfs `resource` and `numa_node` of the cards. A switch of several
stages becomes one switch with all of its cards.
"""
import json
import pathlib
import re

TOPOLOGIES = pathlib.Path(__file__).resolve().parent / "topologies.json"
VENDORS = {"intel": "GenuineIntel", "amd": "AuthenticAMD", None: "GenuineIntel"}
FIRST_SLOT = 8
SPEEDS = {1: "2_5", 2: "5", 3: "8", 4: "16"}
GIB = 1 << 30
AUDIO = {"2684": "0x22ba", "2204": "0x1aef", "2b85": "0x22e8", "2230": "0x1aef"}
# chip ids that nouveau reads, so that it refuses the card as a kernel of this age does
CHIPS = {"2684": (0x192000A1, 0x192A1000), "2204": (0x172000A1, 0x172A1000), "2b85": (0x1B2000A1, 0x1B2A1000), "2230": (0x172000A1, 0x172A1000)}
# PCI classes in a machine record
DISPLAY, BRIDGE = (0x0300, 0x0302), 0x0604
EXPRESS, REBAR = 0x10, 0x15
ROOT_PORT = 4
MAKERS = {0x8086: "intel", 0x1022: "amd"}


class TopologyError(Exception):
    """An invalid topology; the text names the place."""


class Bus:
    def __init__(self, maker):
        self.maker = maker  # of the CPU
        self.arguments, self.chassis, self.cards = [], 0, 0

    def device(self, driver, **properties):
        words = ",".join(f"{key.replace('_', '-')}={value}" for key, value in properties.items())
        self.arguments += ["-device", f"{driver},{words}" if words else driver]

    def port(self, driver, bus, addr, **properties):
        self.chassis += 1
        name = f"port{self.chassis}"
        self.device(driver, id=name, bus=bus, addr=addr, chassis=self.chassis, slot=self.chassis, **properties)
        return name

    def root_port(self, bus, addr, content):
        card = content.get("gpu", {})
        generation, lanes = card.get("link", [4, 16])
        properties = {"x-speed": SPEEDS[generation], "x-width": lanes}
        if card.get("bar1_gib", 32) < card.get("bar1_most_gib", 32) and not card.get("narrow"):
            properties["pref64-reserve"] = "64G"
        name = self.port(f"{self.maker}-root-port", bus, addr, **properties)
        if "gpu" in content:
            self.card(name, content["gpu"])
        elif "switch" in content:
            self.switch(name, content["switch"])
        else:
            raise TopologyError(f"a port holds neither gpu nor switch: {content}")

    def switch(self, bus, cards):
        upstream = f"up{bus}"
        self.device("switch-upstream", id=upstream, bus=bus, addr="0.0")
        for number, content in enumerate(cards):
            self.card(self.port("switch-downstream", upstream, f"{number}.0"), content["gpu"])

    def card(self, bus, card):
        unknown = card.keys() - {"device", "bar1_gib", "bar1_most_gib", "link", "narrow"}
        if unknown:
            raise TopologyError(f"a card has no {sorted(unknown)[0]}")
        device = card.get("device", "2684")
        if device not in CHIPS:
            raise TopologyError(f"there is no simulated card {device}; there are {', '.join(sorted(CHIPS))}")
        generation, lanes = card.get("link", [4, 16])
        boot_0, boot_42 = CHIPS[device]
        self.device("simulated-gpu", bus=bus, addr="0.0", multifunction="on", device_id=f"0x{device}", boot_0=boot_0, boot_42=boot_42,
                    bar1=int(card.get("bar1_gib", 32) * GIB), bar1_most=int(card.get("bar1_most_gib", 32) * GIB),
                    link_speed=generation, link_width=lanes)
        self.device("simulated-gpu", bus=bus, addr="0.1", device_id=AUDIO[device], class_id="0x0403", bar1=0)
        self.cards += 1


def numa_nodes(count, memory_mib):
    """A node for each socket, with its part of the memory."""
    return [word for number in range(count)
            for word in ("-object", f"memory-backend-ram,id=memory{number},size={memory_mib // count}M",
                         "-numa", f"node,nodeid={number},memdev=memory{number}")]


def arguments(topology, memory_mib):
    """Arguments of QEMU for a topology, after the machine's type and memory."""
    unknown = topology.keys() - {"title", "iommu", "sockets", "hole_gib"}
    if unknown:
        raise TopologyError(f"a topology has no {sorted(unknown)[0]}")
    bus = Bus(topology.get("iommu") or "intel")
    if "hole_gib" in topology:
        bus.arguments += ["-global", f"q35-pcihost.pci-hole64-size={topology['hole_gib']}G"]
    if topology.get("iommu"):
        bus.device({"intel": "intel-iommu", "amd": "amd-iommu"}[topology["iommu"]], **({"intremap": "off"} if topology["iommu"] == "intel" else {}))
    for number, ports in enumerate(topology["sockets"]):
        root = "pcie.0"
        if number:
            root = f"socket{number}"
            bus.arguments += ["-device", f"pxb-pcie,id={root},bus=pcie.0,bus_nr={0x40 * number},numa_node={number}"]
        for at, content in enumerate(ports):
            bus.root_port(root, f"{FIRST_SLOT + at if not number else at}.0", content)
    sockets = len(topology["sockets"])
    return bus.arguments if sockets == 1 else [*numa_nodes(sockets, memory_mib), *bus.arguments]


def read(name):
    """A topology by its name."""
    known = json.loads(TOPOLOGIES.read_text())
    if name not in known:
        raise TopologyError(f"no topology is called {name}; there are {', '.join(known)}")
    return known[name]


# ---- of a recorded machine -------------------------------------------------------------------------------------------

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
    """The topology of a machine record: its cards, the switches above them, its sockets and whose IOMMU it has."""
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
