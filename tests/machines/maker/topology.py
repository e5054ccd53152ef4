# SPDX-License-Identifier: MIT
"""The PCI tree of a machine: numbers buses and addresses as firmware does, then writes dump and sysfs files."""

from .config_space import DOWNSTREAM, ENDPOINT, GIB, MIB, ROOT_PORT, UPSTREAM, ConfigSpace, dump, words

SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
MEM32, MEM64, IO, ROM = 0x40200, 0x14220c, 0x40101, 0x46200  # flags of sysfs `resource`
CLASSES = {0x0108: "Non-Volatile memory controller", 0x0180: "Mass storage controller", 0x0200: "Ethernet controller", 0x0300: "VGA compatible controller",
           0x0302: "3D controller", 0x0403: "Audio device", 0x0600: "Host bridge", 0x0601: "ISA bridge",
           0x0604: "PCI bridge", 0x0680: "Bridge", 0x0806: "IOMMU", 0x0880: "System peripheral", 0x0c05: "SMBus"}


class Function:
    """A leaf: identity, BARs as (number, bytes, flags), link as (speed, width) with the current one beside it.

    Only `extended` ones get the 4096 bytes of PCI Express: no check looks that far into the others.
    """

    def __init__(self, slot, vendor, device, class_code, name, driver=None, revision=0, subsystem=None, bars=(), link=None,
                 current=None, fill=None, multifunction=False, extended=False):
        self.slot, self.name, self.driver, self.bars = slot, name, driver, list(bars)
        self.link, self.current = link, current or link
        self.space = ConfigSpace(vendor, device, class_code, revision, subsystem, 0, multifunction, extended)
        if fill:
            fill(self.space)
        elif link:
            self.space.power_management(0x40)
            self.space.express(0x70, ENDPOINT, *link, current=self.current)
        if any(flags == IO for _, _, flags in self.bars):
            self.space.put(0x04, 2, 0x0407)
        self.children, self.at, self.lost = [], {}, False

    @property
    def class_code(self):
        return self.space.get(0x0a, 2)


class Bridge(Function):
    """A root port or one port of a switch; `acs` None: no such capability, else its control register.

    `room` is the least size of its prefetchable window; `bars` are its own.
    """

    def __init__(self, slot, model, *children, link, current=None, acs=None, driver="pcieport", number=0, room=0, bars=()):
        vendor, device, name, layout, port, atomics = model
        super().__init__(slot, vendor, device, 0x060400, name, driver, bars=bars, link=link, current=current,
                         fill=lambda space: None)
        self.room = room
        self.space = ConfigSpace(vendor, device, 0x060400, 0, None, header_type=1)
        layout(self.space, port, link, self.current, atomics, acs, number)
        self.children = list(children)


# Where the makers put the capabilities (lspci -vvv of such ports).
def amd_port(space, port, link, current, atomics, acs, number):
    space.power_management(0x50)
    space.express(0x58, port, *link, current=current, port_number=number, atomics=atomics, max_payload=2, slot=number)
    space.msi(0xa0)
    space.subsystem(0xc0, 0x1022, 0x1453)
    space.extended(0x100, 0x0b, 1, words((4, 0x01010001)))
    space.advanced_errors(0x150)
    space.extended(0x270, 0x19, 1)
    if acs is not None:
        space.acs(0x2a0, acs)
    space.extended(0x370, 0x1e, 1)
    space.extended(0x400, 0x25, 1)
    space.extended(0x410, 0x26, 1)
    space.extended(0x450, 0x27, 1)


def intel_port(space, port, link, current, atomics, acs, number):
    space.express(0x40, port, *link, current=current, port_number=number, atomics=atomics, max_payload=1, slot=number)
    space.msi(0x80)
    space.subsystem(0x90, 0x8086, 0x7270)
    space.power_management(0xa0)
    space.advanced_errors(0x100)
    if acs is not None:
        space.acs(0x140, acs, capability=0x001f)
    space.extended(0x220, 0x19, 1)


def switch_port(space, port, link, current, atomics, acs, number):
    space.power_management(0x40)
    space.msi(0x48)
    space.express(0x68, port, *link, current=current, port_number=number, atomics=atomics, max_payload=2, slot=number)
    space.subsystem(0xa4, 0x1000, 0xa096)
    space.extended(0x100, 0x03, 1, bytes(8))  # serial number: zero
    space.advanced_errors(0xfb4)
    space.extended(0x138, 0x04, 1)
    space.extended(0x148, 0x02, 1)
    space.extended(0x950, 0x0b, 1, words((4, 0x01c10001)))
    if acs is not None:
        space.acs(0xf24, acs)


def virtual_port(space, port, link, current, atomics, acs, number):
    space.express(0x54, port, *link, current=current, port_number=number, atomics=atomics, max_payload=0, slot=number)
    space.advanced_errors(0x100)
    if acs is not None:
        space.acs(0x148, acs, capability=0x001f)


ATOMIC_ROUTING, ATOMIC_32_64 = 0x40, 0x180
AMD_ZEN2_PORT = (0x1022, 0x1483, "Starship/Matisse GPP Bridge", amd_port, ROOT_PORT, ATOMIC_ROUTING | ATOMIC_32_64)
AMD_AM5_PORT = (0x1022, 0x14db, "Raphael/Granite Ridge GPP Bridge", amd_port, ROOT_PORT, ATOMIC_ROUTING | ATOMIC_32_64)
AMD_GENOA_PORT = (0x1022, 0x14ab, "Genoa/Bergamo PCIe GPP Bridge", amd_port, ROOT_PORT, ATOMIC_ROUTING | ATOMIC_32_64)
INTEL_PEG_PORT = (0x8086, 0xa70d, "Raptor Lake PCI Express 5.0 Graphics Port", intel_port, ROOT_PORT, ATOMIC_32_64)
INTEL_XEON_PORT = (0x8086, 0x347a, "Ice Lake PCI Express Root Port A", intel_port, ROOT_PORT, ATOMIC_ROUTING | 0x380)
VIRTUAL_PORT = (0x1b36, 0x000c, "QEMU PCIe Root port", virtual_port, ROOT_PORT, 0)
PEX88096_UP = (0x1000, 0xc010, "PEX880xx PCIe Gen 4 Switch", switch_port, UPSTREAM, ATOMIC_ROUTING)
PEX88096_DOWN = (0x1000, 0xc010, "PEX880xx PCIe Gen 4 Switch", switch_port, DOWNSTREAM, ATOMIC_ROUTING)


class RootComplex:
    """The functions of one root bus; `above4g` and `below4g` are where its memory windows begin. That above 4 GiB has a TiB, or what is left to the next one."""

    def __init__(self, bus, *functions, numa=-1, cpus=None, below4g=0xa0000000, above4g=0x2000000000):
        self.bus, self.functions, self.numa, self.cpus = bus, functions, numa, cpus
        self.below4g, self.above4g = below4g, above4g


class Tree:
    """Numbers everything on construction; then `dump()` and `files()`."""

    def __init__(self, complexes, iommu):
        self.iommu, self.listed, self.groups = iommu, [], {}
        for root in complexes:
            self.cursor = {MEM32: root.below4g, MEM64: root.above4g, IO: 0x1000}
            self.next_bus = root.bus + 1
            for function in root.functions:
                self.number(function, root.bus, root, None)
            for function in root.functions:
                self.place(function)
        self.listed.sort(key=lambda function: function.address)
        self.group()

    def number(self, function, bus, root, above):
        slot = function.slot
        function.address, function.root, function.above = f"0000:{bus:02x}:{slot}", root, above
        self.listed.append(function)
        if isinstance(function, Bridge):
            function.secondary = self.next_bus
            self.next_bus += 1
            for child in function.children:
                self.number(child, function.secondary, root, function)
            function.subordinate = self.next_bus - 1
            function.space.put(0x18, 4, bus | function.secondary << 8 | function.subordinate << 16)

    def place(self, function):
        if not isinstance(function, Bridge):
            for number, size, flags in sorted(function.bars, key=lambda bar: -bar[1]):
                self.place_bar(function, number, size, flags)
            return
        start = {}
        for kind, least in ((MEM32, MIB), (MEM64, MIB), (IO, 0x1000)):
            self.align(kind, max([least] + sizes(function, kind)))
            start[kind] = self.cursor[kind]
        for child in sorted(function.children, key=lambda child: -max(sizes(child, MEM64), default=0)):
            self.place(child)
        self.cursor[MEM64] = max(self.cursor[MEM64], start[MEM64] + function.room)
        function.windows = {}
        for kind, least in ((MEM32, MIB), (MEM64, MIB), (IO, 0x1000)):
            if self.cursor[kind] > start[kind]:
                self.align(kind, least)
                function.windows[kind] = (start[kind], self.cursor[kind] - 1)
        set_windows(function)
        for number, size, flags in function.bars:
            self.place_bar(function, number, size, flags)

    def align(self, kind, size):
        self.cursor[kind] = (self.cursor[kind] + size - 1) // size * size

    def place_bar(self, function, number, size, flags):
        kind = MEM32 if flags == ROM else flags
        self.align(kind, size)
        first = self.cursor[kind]
        self.cursor[kind] += size
        function.at[number] = (first, first + size - 1, flags)
        if flags == MEM64:
            function.space.put(0x10 + 4 * number, 8, first | 0xc)
        else:
            function.space.put(0x30 if flags == ROM else 0x10 + 4 * number, 4, first | (1 if flags == IO else 0))

    def group(self):
        """Groups as Linux forms them where every port has ACS: the functions of one slot together."""
        if self.iommu is None:
            return
        numbers = {}
        for function in self.listed:
            key = function.address if function.above is None else function.address.rsplit(".", 1)[0]
            self.groups[function.address] = numbers.setdefault(key, len(numbers))

    def dump(self, whole=True):
        """Text of lspci; unless `whole`, extended configuration space ends where it holds nothing more."""
        return "".join(dump(f.address, f"{CLASSES[f.class_code]}: {f.name}", used(f, whole)) for f in self.listed)

    def files(self):
        """Path to text, or to ("link", target)."""
        files = {}
        for function in self.listed:
            here = f"sys/bus/pci/devices/{function.address}/"
            files[here + "class"] = f"0x{function.space.get(0x09, 3):06x}\n"
            files[here + "numa_node"] = f"{function.root.numa}\n"
            files[here + "resource"] = resource(function)
            if function.link:
                for when, (speed, width) in (("max", function.link), ("current", function.current)):
                    files[here + when + "_link_speed"] = ("Unknown" if function.lost else SPEEDS[speed]) + "\n"
                    files[here + when + "_link_width"] = f"{63 if function.lost else width}\n"
            if function.lost:  # the kernel still knows what it was
                files[here + "vendor"] = f"0x{function.space.get(0x00, 2):04x}\n"
                files[here + "device"] = f"0x{function.space.get(0x02, 2):04x}\n"
            if function.driver:
                files[here + "driver"] = ("link", "../../../../bus/pci/drivers/" + function.driver)
            if function.address in self.groups:
                group = self.groups[function.address]
                files[here + "iommu_group"] = ("link", f"../../../../kernel/iommu_groups/{group}")
                files[f"sys/kernel/iommu_groups/{group}/type"] = self.iommu + "\n"
        files["proc/iomem"] = self.iomem()
        return files

    def iomem(self):
        """Memory below each host bridge, as /proc/iomem shows it to root."""
        ranges = [(first, last, function.address) for function in self.listed
                  for first, last, flags in function.at.values() if flags != IO]
        ranges += [(*function.windows[kind], f"PCI Bus 0000:{function.secondary:02x}") for function in self.listed
                   if isinstance(function, Bridge) for kind in (MEM32, MEM64) if kind in function.windows]
        roots = {function.root for function in self.listed}
        for root in roots:
            for first in (root.below4g, root.above4g):
                end = min([first + 1024 * GIB if first >= 4 * GIB else 0xfec00000] +
                          [start for other in roots for start in (other.below4g, other.above4g) if start > first])
                ranges.append((first, end - 1, f"PCI Bus 0000:{root.bus:02x}"))
        text, above = "", []
        for first, last, name in sorted(ranges, key=lambda one: (one[0], -one[1], not one[2].startswith("PCI"), one[2])):
            while above and above[-1] < first:
                above.pop()
            text += f"{'  ' * len(above)}{first:08x}-{last:08x} : {name}\n"
            above.append(last)
        return text


def used(function, whole):
    """The bytes that a dump shows; all ones of a card that fell off the bus."""
    if function.lost:
        return b"\xff" * 256
    data = function.space.bytes
    return data if whole else data[:max(256, (len(data.rstrip(b"\0")) + 15) // 16 * 16)]


def sizes(function, kind):
    own = [size for _, size, flags in function.bars if (MEM32 if flags == ROM else flags) == kind]
    return own + [size for child in function.children for size in sizes(child, kind)]


def set_windows(bridge):
    space = bridge.space
    first, last = bridge.windows.get(IO, (0xf000, 0x0fff))
    space.put(0x1c, 2, (first >> 8 & 0xf0) | 1 | ((last >> 8 & 0xf0) | 1) << 8)
    first, last = bridge.windows.get(MEM32, (0xfff00000, 0x000fffff))
    space.put(0x20, 4, (first >> 16 & 0xfff0) | (last >> 16 & 0xfff0) << 16)
    first, last = bridge.windows.get(MEM64, (0xfff00000, 0x000fffff))
    space.put(0x24, 4, (first >> 16 & 0xfff0) | 1 | ((last >> 16 & 0xfff0) | 1) << 16)
    space.put(0x28, 4, first >> 32)
    space.put(0x2c, 4, last >> 32)


def resource(function):
    """As a kernel with SR-IOV prints it: 13 lines, of bridges 17 with the windows in lines 13 to 15."""
    lines = dict(function.at)
    count = 13
    if isinstance(function, Bridge):
        count = 17
        for number, kind, flags in ((13, IO, 0x101), (14, MEM32, 0x200), (15, MEM64, 0x102201)):
            if kind in function.windows:
                lines[number] = (*function.windows[kind], flags)
    return "".join("0x%016x 0x%016x 0x%016x\n" % lines.get(number, (0, 0, 0)) for number in range(count))
