# SPDX-License-Identifier: MIT
"""The variables of a guest's UEFI firmware, changed while the guest is off.

A key of the machine is enrolled at the blue screen of shim (MokManager), which needs a person. MokManager only writes the
variable MokList; this module writes it into the file in which OVMF keeps its variables. Debian 12 has no program for that. Keys of
one's own (PK, KEK, db) are enrolled in the menus of the firmware.
Reference: MdeModulePkg/Include/Guid/VariableFormat.h and Include/Guid/AuthenticatedVariableFormat.h of EDK II; UEFI, 32.4.1
(EFI_SIGNATURE_LIST); MokVars.txt of shim.
"""
import struct
import uuid

GLOBAL = uuid.UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")
IMAGES = uuid.UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
SHIM = uuid.UUID("605dab50-e046-4300-abb6-3dd810dd8b23")
X509 = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
STORE = uuid.UUID("aaf32c78-947b-439a-a180-2e144ec37792")  # variables with a time stamp
STORE_HEADER = struct.Struct("<16sIBBHI")
HEADER = struct.Struct("<HBBIQ16sIII16s")
START, ADDED = 0x55AA, 0x3F
STAYS, BEFORE_BOOT, AFTER_BOOT, SIGNED = 1, 2, 4, 0x20  # attributes; shim rejects a MokList that the system could have written


def aligned(offset):
    return offset + -offset % 4


def end_of_variables(store, at):
    """The offset of the first free byte."""
    while store[at:at + 2] == struct.pack("<H", START):
        *_, name_size, data_size, _ = HEADER.unpack_from(store, at)
        at = aligned(at + HEADER.size + name_size + data_size)
    return at


def add_variable(path, name, vendor, data, more=0):
    """Adds a persistent variable; without `more` attributes, only programs before the operating system can read it."""
    store = bytearray(path.read_bytes())
    start, = struct.unpack_from("<H", store, 48)  # after the header of the firmware volume
    kind, size, *_ = STORE_HEADER.unpack_from(store, start)
    if uuid.UUID(bytes_le=kind) != STORE:
        raise ValueError(f"{path} is no store of variables")
    words = (name + "\0").encode("utf-16-le")
    entry = HEADER.pack(START, ADDED, 0, STAYS | BEFORE_BOOT | more, 0, bytes(16), 0, len(words), len(data), vendor.bytes_le) + words + data
    at = end_of_variables(store, aligned(start + STORE_HEADER.size))
    if at + len(entry) > start + size:
        raise ValueError(f"{path} has no room for {name}")
    store[at:at + len(entry)] = entry
    path.write_bytes(store)


def signatures(*certificates):
    """Lists of one certificate (DER) each."""
    return b"".join(X509.bytes_le + struct.pack("<III", 28 + 16 + len(one), 0, 16 + len(one)) + SHIM.bytes_le + one for one in certificates)


def enrol(path, certificate):
    """Makes shim trust a certificate (DER), and hand it to the kernel."""
    add_variable(path, "MokList", SHIM, signatures(certificate))


def enrol_own(path, owner, *others):
    """Switches Secure Boot on in variables without keys: the firmware trusts its owner's certificate (DER), and others, and nobody else's."""
    for name, vendor, certificates in (("PK", GLOBAL, [owner]), ("KEK", GLOBAL, [owner]), ("db", IMAGES, [owner, *others])):
        add_variable(path, name, vendor, signatures(*certificates), AFTER_BOOT | SIGNED)
