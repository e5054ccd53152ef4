# SPDX-License-Identifier: MIT
"""PCI configuration space, byte by byte: offsets and bits of the PCI Express Base Specification 5.0, chapter 7."""

MIB = 1 << 20
GIB = 1 << 30

# Device/port types of the PCI Express capability.
ENDPOINT, LEGACY_ENDPOINT, ROOT_PORT, UPSTREAM, DOWNSTREAM, INTEGRATED = 0, 1, 4, 5, 6, 9


class ConfigSpace:
    """The 256 or 4096 bytes of one function; capabilities are chained in the order in which they are added."""

    def __init__(self, vendor, device, class_code, revision=0, subsystem=None, header_type=0, multifunction=False,
                 extended=True):
        self.bytes = bytearray(4096 if extended else 256)
        self.put(0x00, 2, vendor)
        self.put(0x02, 2, device)
        self.put(0x04, 2, 0x0407 if header_type else 0x0406)  # memory, bus master, no INTx; a bridge also I/O
        self.put(0x06, 2, 0x0010)
        self.put(0x08, 1, revision)
        self.put(0x09, 3, class_code)
        self.put(0x0c, 1, 0x10)
        self.put(0x0e, 1, header_type | (0x80 if multifunction else 0))
        if subsystem and not header_type:
            self.put(0x2c, 2, subsystem[0])
            self.put(0x2e, 2, subsystem[1])
        self.put(0x3c, 2, 0x01ff)
        self.link = 0x34  # where the offset of the next capability goes
        self.header = None  # offset of the extended capability that was added last

    def put(self, offset, size, value):
        self.bytes[offset:offset + size] = value.to_bytes(size, "little")

    def get(self, offset, size):
        return int.from_bytes(self.bytes[offset:offset + size], "little")

    def capability(self, offset, identifier, body):
        self.put(self.link, 1, offset)
        self.put(offset, 1, identifier)
        self.bytes[offset + 2:offset + 2 + len(body)] = body
        self.link = offset + 1

    def extended(self, offset, identifier, version, body=b""):
        assert offset >= 0x100 and offset % 4 == 0
        if self.header is None:
            assert offset == 0x100, "the first extended capability is at 0x100"
        else:
            self.put(self.header, 4, self.get(self.header, 4) & 0x000fffff | offset << 20)
        self.put(offset, 4, identifier | version << 16)
        self.bytes[offset + 4:offset + 4 + len(body)] = body
        self.header = offset

    def power_management(self, offset, pme=True):
        self.capability(offset, 0x01, words((2, 0xf803 if pme else 0x0003), (4, 0x0008)))

    def msi(self, offset):
        self.capability(offset, 0x05, words((2, 0x0081), (8, 0xfee00000), (2, 0x0024)))

    def subsystem(self, offset, vendor, device):
        self.capability(offset, 0x0d, words((2, 0), (2, vendor), (2, device)))

    def express(self, offset, port, speed, width, current=None, port_number=0, atomics=0, max_payload=1, slot=0):
        """`speed` 1 to 5 for 2.5 to 32 GT/s, `current` = (speed, width) now, `atomics` = DevCap2 bits 6 to 9."""
        now_speed, now_width = current or (speed, width)
        is_port = port in (ROOT_PORT, UPSTREAM, DOWNSTREAM)
        has_slot = port in (ROOT_PORT, DOWNSTREAM)
        link = port != INTEGRATED
        device = max_payload | 0x20 | 0x8000 | (0 if is_port else 0x10000dc0)
        control = 0x0100 | max_payload << 5 | (0 if is_port else 0x2810)  # tags; of endpoints MRRS 512, RO, no snoop
        status = now_speed | now_width << 4 | 0x1000 | (0x2000 if has_slot else 0)
        self.capability(offset, 0x10, words(
            (2, 2 | port << 4 | (0x100 if has_slot else 0)), (4, device), (2, control), (2, 0),
            (4, (speed | width << 4 | 0x800 | 0x400000 | (0x100000 if has_slot else 0) | port_number << 24) if link else 0),
            (2, 0x0040 if link else 0), (2, status if link else 0),
            (4, slot << 19 if has_slot else 0), (2, 0), (2, 0x0040 if has_slot else 0),  # presence detected
            (2, 0), (2, 0), (4, 0),
            (4, 0x0812 | (0x20 if is_port else 0x70000) | atomics), (2, 0), (2, 0),
            (4, ((1 << speed) - 1) << 1 if link else 0), (2, speed if link else 0), (2, 0x001e if link else 0)))

    def acs(self, offset, control, capability=0x005f):
        """Access Control Services: SV 1, TB 2, RR 4, CR 8, UF 0x10, EC 0x20, DT 0x40."""
        self.extended(offset, 0x0d, 1, words((2, capability), (2, control)))

    def advanced_errors(self, offset):
        self.extended(offset, 0x01, 2, words((4, 0), (4, 0), (4, 0x00462030), (4, 0), (4, 0x2000), (4, 0xa0)))

    def resizable_bars(self, offset, bars):
        """`bars`: (number, current bytes, supported bytes...)."""
        body = b""
        for number, current, *supported in bars:
            capability = sum(size // MIB << 4 for size in supported)
            control = number | len(bars) << 5 | (current // MIB).bit_length() - 1 << 8
            body += words((4, capability), (4, control))
        self.extended(offset, 0x15, 1, body)


def words(*fields):
    return b"".join(value.to_bytes(size, "little") for size, value in fields)


def dump(address, description, data):
    """One function as `lspci -D -xxxx` prints it."""
    rows = [f"{at:02x}: " + " ".join(f"{byte:02x}" for byte in data[at:at + 16]) for at in range(0, len(data), 16)]
    return f"{address} {description}\n" + "\n".join(rows) + "\n\n"
