# SPDX-License-Identifier: MIT
"""The PCI bus of a guest: an entry of topologies.json to arguments of QEMU.

    {"title": "...", "iommu": "intel",
     "sockets": [[{"gpu": {}}, {"switch": [{"gpu": {}}, {"gpu": {"device": "2204", "bar1_gib": 0.25}}]}]]}

`iommu` is intel, amd or null; it also says whose CPU the guest has. A list of `sockets` holds root ports each, a port a card, or a
switch with a card on each of its ports. Of a card: `device` (PCI id; 2684, an RTX 4090), `bar1_gib` that firmware gives it (32),
`bar1_most_gib` to which it can be resized (32; 0: it has no such capability), `link` [generation, lanes] ([4, 16]).
A card on a root port whose BAR1 is smaller than it could be has room for all of it in the window above, unless `"narrow": true`.
`hole_gib`: address space of the root bus above 4 GiB; where it is not told, what firmware hands out and little more.
"""
import json
import pathlib

TOPOLOGIES = pathlib.Path(__file__).resolve().parent / "topologies.json"
VENDORS = {"intel": "GenuineIntel", "amd": "AuthenticAMD", None: "GenuineIntel"}
FIRST_SLOT = 8
SPEEDS = {1: "2_5", 2: "5", 3: "8", 4: "16"}
GIB = 1 << 30
AUDIO = {"2684": "0x22ba", "2204": "0x1aef", "2b85": "0x22e8", "2230": "0x1aef"}
# chip ids that nouveau reads, so that it refuses the card as a kernel of this age does
CHIPS = {"2684": (0x192000A1, 0x192A1000), "2204": (0x172000A1, 0x172A1000), "2b85": (0x1B2000A1, 0x1B2A1000), "2230": (0x172000A1, 0x172A1000)}


class TopologyError(Exception):
    """A topology that is none; the text says where."""


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
    """What QEMU is told for a topology, after the machine's type and memory."""
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
