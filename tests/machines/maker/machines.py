# SPDX-License-Identifier: MIT
"""The machines that were made from facts. Each stands for a case that people reported; `source` says where."""

import json

from .boot import grub_menu, initramfs_lists
from .cards import RTX3090, RTX4090, RTX5090, gpu
from .config_space import GIB, MIB
from .installed import board, nouveau_loaded
from .stock import BOOKWORM, JAMMY, JAMMY_HWE, NOBLE, debian_driver, stock, ubuntu_driver
from .topology import (AMD_AM5_PORT, AMD_GENOA_PORT, AMD_ZEN2_PORT, INTEL_PEG_PORT, INTEL_XEON_PORT, IO, MEM32, MEM64,
                       PEX88096_DOWN, PEX88096_UP, Bridge, Function, RootComplex, Tree)

REDIRECT = 0x001d  # source validation, request and completion redirect, upstream forwarding: what Linux sets
FREE = 384 * GIB   # on the one file system of a made machine
IDLE = 1           # an idle GeForce drops its link to 2.5 GT/s
UBUNTU_GCC13 = "gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) "
UBUNTU_GCC12 = "gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04) "
DEBIAN_GCC12 = "gcc version 12.2.0 (Debian 12.2.0-14) "


class Machine:
    """A record: `files` and what the PCI tree adds to them. `root_cause`: the probe that doctor must name first, or None.

    `outlook`, unless told: provable without a root cause, else fixable. `blocked_by` and `excluding`: see README.md.
    """

    def __init__(self, name, title, source, complexes, iommu, files, root_cause, why, notes=(), whole=True, outlook=None,
                 blocked_by=None, excluding=None):
        self.name = name
        tree = Tree(complexes, iommu)
        description = {"schema": "p2pd.machine/1", "name": name, "title": title, "source": "made from facts: " + source,
                       "captured": None, "notes": list(notes),
                       "free_bytes": {path: FREE for path in ("/usr", "/var", "/boot")}}
        self.files = dict(files) | tree.files() | {
            "lspci-xxxx.txt": tree.dump(whole), "machine.json": text_of(description),
            "expected.json": text_of({"outlook": outlook or ("fixable" if root_cause else "provable"), "root_cause": root_cause}
                                     | ({"blocked_by": blocked_by} if blocked_by else {}) | {"why": why, "source": source}
                                     | ({"excluding": excluding} if excluding else {}))}
        self.files |= grub_menu(self.files) | initramfs_lists(self.files)


def excluding(gpus, outlook, root_cause, why):
    """Expected result under a plan that excludes `gpus`."""
    return {"gpus": gpus, "outlook": outlook, "root_cause": root_cause, "why": why}


def text_of(value):
    return json.dumps(value, indent=2) + "\n"


def host_bridge(slot, vendor, device, name):
    return Function(slot, vendor, device, 0x060000, name)


def nvme(slot="00.0", link=(4, 4)):
    return Function(slot, 0x144d, 0xa80a, 0x010802, "Samsung Electronics Co Ltd NVMe SSD Controller PM9A1/PM9A3/980PRO",
                    "nvme", subsystem=(0x144d, 0xa801), bars=[(0, 16 << 10, MEM32)], link=link)


def network(slot="00.0"):
    return Function(slot, 0x8086, 0x1563, 0x020000, "Intel Corporation Ethernet Controller X550", "ixgbe", 1,
                    (0x8086, 0x0001), [(0, 4 * MIB, MEM64), (4, 16 << 10, MEM64)], link=(3, 4))


def bmc_display(slot="00.0"):
    return Function(slot, 0x1a03, 0x2000, 0x030000, "ASPEED Technology, Inc. ASPEED Graphics Family", "ast", 0x41,
                    (0x1a03, 0x2000), [(0, 16 * MIB, MEM32), (1, 128 << 10, MEM32), (2, 128, IO)], link=(1, 1))


def amd_common(root_device, iommu_device, dummy_device, family):
    return [host_bridge("00.0", 0x1022, root_device, f"Advanced Micro Devices, Inc. [AMD] {family} Root Complex"),
            Function("00.2", 0x1022, iommu_device, 0x080600, f"Advanced Micro Devices, Inc. [AMD] {family} IOMMU"),
            host_bridge("01.0", 0x1022, dummy_device, f"Advanced Micro Devices, Inc. [AMD] {family} PCIe Dummy Host Bridge")]


def fch():
    return [Function("14.0", 0x1022, 0x790b, 0x0c0500, "Advanced Micro Devices, Inc. [AMD] FCH SMBus Controller", "piix4_smbus",
                     multifunction=True),
            Function("14.3", 0x1022, 0x790e, 0x060100, "Advanced Micro Devices, Inc. [AMD] FCH LPC Bridge", multifunction=True)]


def iommu_devices(*names):
    return {f"sys/class/iommu/{name}": ("link", f"../../devices/{where}/iommu/{name}") for name, where in names}


def numa_nodes(*cpus):
    return {f"sys/devices/system/node/node{number}/cpulist": list_ + "\n" for number, list_ in enumerate(cpus)}


IVRS = {"sys/firmware/acpi/tables/IVRS": ""}


def am5():
    """Two RTX 4090 on eight lanes each, and the processor's own GPU."""
    idle = (IDLE, 8)
    port = dict(link=(5, 8), current=idle, acs=REDIRECT)
    integrated = Function("00.0", 0x1002, 0x164e, 0x030000, "Advanced Micro Devices, Inc. [AMD/ATI] Raphael", "amdgpu", 0xc1,
                          (0x1002, 0x164e), [(0, 256 * MIB, MEM64), (2, 2 * MIB, MEM64)], link=(4, 16))
    return RootComplex(
        0x00, *amd_common(0x14d8, 0x14d9, 0x14da, "Raphael/Granite Ridge"),
        Bridge("01.1", AMD_AM5_PORT, *gpu(RTX4090, width=8, current=idle), **port, number=1),
        Bridge("01.2", AMD_AM5_PORT, nvme(), link=(4, 4), acs=REDIRECT, number=2),
        Bridge("01.3", AMD_AM5_PORT, *gpu(RTX4090, width=8, current=idle), **port, number=3),
        Bridge("08.1", AMD_AM5_PORT, integrated, link=(4, 16), acs=REDIRECT, number=4), *fch())


def rtx4090_x2_am5():
    files = stock(NOBLE, "quiet splash", ubuntu_driver(
        NOBLE, "570.133.20", "Sun Mar 23 12:51:43 UTC 2025", UBUNTU_GCC13, "570.133.20-0ubuntu0.24.04.1"))
    files |= board("ASUSTeK COMPUTER INC.", "ProArt X670E-CREATOR WIFI", ("ASUS", "System Product Name"))
    return Machine(
        "rtx4090-x2-am5", "Two RTX 4090 on an AM5 board, stock driver, IOMMU translating",
        "cases.md tree-2x5090-am5-lspci-t (tree of such a board), field-notes.md sections 1 to 3 (BAR1, ACS, IOMMU)",
        [am5()], "DMA-FQ", files | IVRS | iommu_devices(("ivhd0", "pci0000:00/0000:00:00.2")),
        "iommu", "the AMD IOMMU translates (DMA-FQ, no iommu=pt) and the root ports redirect (ACS 0x001d), so peer "
        "traffic would fault or detour; behind that, the stock driver refuses P2P between GeForce cards",
        ["BAR1 is 32 GiB on both cards: firmware is fine", "links are x8 and idle at 2.5 GT/s"])


def rtx4090_x2_rebar_off():
    port = dict(link=(5, 8), current=(IDLE, 8), acs=0)
    card = dict(width=8, current=(IDLE, 8), bar1=256 * MIB)
    root = RootComplex(
        0x00, host_bridge("00.0", 0x8086, 0xa700, "Intel Corporation Raptor Lake-S Host Bridge/DRAM Controller"),
        Bridge("01.0", INTEL_PEG_PORT, *gpu(RTX4090, **card), **port, number=2),
        Bridge("01.1", INTEL_PEG_PORT, *gpu(RTX4090, **card), **port, number=3),
        Bridge("06.0", INTEL_PEG_PORT, nvme(), link=(4, 4), acs=0, number=9),
        Function("1f.0", 0x8086, 0x7a84, 0x060100, "Intel Corporation Z690 Chipset LPC/eSPI Controller", multifunction=True),
        above4g=0x4000000000)
    files = stock(BOOKWORM, "quiet", debian_driver(
        "535.247.01", "Mon Mar 31 19:59:45 UTC 2025", DEBIAN_GCC12, "535.247.01-1~deb12u1", open_module=False))
    files |= board("ASUSTeK COMPUTER INC.", "ROG MAXIMUS Z690 EXTREME", ("ASUS", "System Product Name"), "0-23", "GenuineIntel")
    return Machine(
        "rtx4090-x2-rebar-off", "Two RTX 4090, Resizable BAR off in the firmware",
        "field-notes.md section 2 (mapping of buffer object failed) and section 3 (window = BAR1 + BAR3)",
        [root], None, files, "nvidia-driver",
        "both cards offer BAR1 sizes up to 32 GiB, and Linux makes the windows of their ports anew when the driver resizes it: what is "
        "in the way is the proprietary driver",
        ["IOMMU off in the firmware: no iommu_groups, ACS not enabled"])


def rtx3090_x4_epyc():
    port = dict(link=(4, 16), current=(IDLE, 16), acs=REDIRECT)
    card = dict(current=(IDLE, 16))
    parts = (0x1480, 0x1481, 0x1482, "Starship/Matisse")

    def complex_(bus, numa, *more, **options):
        return RootComplex(bus, *amd_common(*parts), *more, numa=numa, above4g=0x20000000000 + bus * 0x800000000,
                           below4g=0xb0000000 + bus * 0x100000)
    complexes = [
        complex_(0x00, 0, Bridge("01.1", AMD_ZEN2_PORT, *gpu(RTX3090, **card), **port, number=1),
                 Bridge("03.1", AMD_ZEN2_PORT, bmc_display(), link=(2, 1), acs=REDIRECT, number=5), *fch()),
        complex_(0x40, 0, Bridge("01.1", AMD_ZEN2_PORT, *gpu(RTX3090, **card), **port, number=2),
                 Bridge("03.1", AMD_ZEN2_PORT, nvme(), link=(4, 4), acs=REDIRECT, number=6)),
        complex_(0x80, 1, Bridge("01.1", AMD_ZEN2_PORT, *gpu(RTX3090, **card), **port, number=3)),
        complex_(0xc0, 1, Bridge("01.1", AMD_ZEN2_PORT, *gpu(RTX3090, bar1=256 * MIB, rebar=False, **card), **port, number=4),
                 Bridge("03.1", AMD_ZEN2_PORT, network(), link=(3, 4), acs=REDIRECT, number=7)),
    ]
    files = stock(BOOKWORM, "quiet amd_iommu=on iommu=pt", debian_driver(
        "550.163.01", "Fri Apr 11 16:23:08 UTC 2025", DEBIAN_GCC12, "550.163.01-2~bpo12+1")) | IVRS
    files |= board(cpus="0-63") | numa_nodes("0-15,32-47", "16-31,48-63")
    return Machine(
        "rtx3090-x4-epyc", "Four RTX 3090 on an EPYC board with two NUMA nodes, one card with an early vBIOS",
        "field-notes.md section 1, hard limits (early 3090 vBIOS caps BAR1 at 256 MiB: aikitoria issue 22, club-3090 issue 734)",
        complexes, "identity", files | iommu_devices(*((f"ivhd{n}", f"pci0000:{bus}/0000:{bus}:00.2")
                                                       for n, bus in enumerate(("c0", "80", "40", "00")))),
        "acs-redirection", "root ports redirect (ACS 0x001d); the driver's mailbox, an option, needs no room in BAR1",
        ["IOMMU in passthrough", "the card at c1:00.0 has no Resizable BAR capability (its vBIOS is too old); no firmware setting helps"],
        excluding=excluding(["0000:c1:00.0"], "fixable", "acs-redirection",
                            "what is left in the way of the other three, root ports that redirect and the distribution's driver, can be fixed"))


def rtx5090_x2_genoa():
    port = dict(link=(5, 16), current=(IDLE, 16), acs=REDIRECT)
    card = dict(current=(IDLE, 16))
    parts = (0x14a4, 0x149e, 0x149f, "Genoa/Bergamo")
    complexes = [
        RootComplex(0x00, *amd_common(*parts), Bridge("01.1", AMD_GENOA_PORT, *gpu(RTX5090, **card), **port, number=1),
                    Bridge("05.1", AMD_GENOA_PORT, bmc_display(), link=(2, 1), acs=REDIRECT, number=4), *fch(), numa=0,
                    above4g=0x20000000000),
        RootComplex(0x80, *amd_common(*parts), Bridge("01.1", AMD_GENOA_PORT, *gpu(RTX5090, **card), **port, number=2),
                    Bridge("03.1", AMD_GENOA_PORT, nvme(), link=(4, 4), acs=REDIRECT, number=3), numa=0, below4g=0xc0000000,
                    above4g=0x60000000000)]
    files = stock(JAMMY_HWE, "quiet splash", ubuntu_driver(
        JAMMY_HWE, "570.86.16", "Fri Jan 24 21:06:34 UTC 2025", UBUNTU_GCC12, "570.86.16-0ubuntu1"))
    files |= board("Supermicro", "H13SSL-N", ("Supermicro", "AS -4125GS-TNRT"), "0-63", five_levels=True) | IVRS
    return Machine(
        "rtx5090-x2-genoa", "Two RTX 5090 on a Genoa server, stock open driver",
        "cases.md p2pbw-2x5090-genoa-stock-open-570-nop2p (nccl-tests issue 287); BARs: aikitoria issue 9",
        complexes, "DMA-FQ", files | iommu_devices(("ivhd0", "pci0000:80/0000:80:00.2"), ("ivhd1", "pci0000:00/0000:00:00.2")),
        "iommu", "the AMD IOMMU translates and ports redirect, so peer traffic would fault or detour; behind that, the stock driver gives no "
        "P2P, and builds of the catalogue do between Blackwell cards",
        ["BAR1 is 32 GiB, VRAM is 32 GiB: a static BAR1 needs BAR1 to cover what the driver uses of it"])


def rtx4090_x8_two_socket():
    def socket(bus, numa, below4g, above4g):
        down = dict(link=(4, 16), current=(IDLE, 16), acs=REDIRECT)
        ports = [Bridge(f"{slot:02x}.0", PEX88096_DOWN, *gpu(RTX4090, current=(IDLE, 16)), **down, number=slot)
                 for slot in (0x00, 0x04, 0x08, 0x0c)]
        up = Bridge("00.0", PEX88096_UP, *ports, link=(4, 16))
        return RootComplex(bus, host_bridge("00.0", 0x8086, 0x09a2, "Intel Corporation Ice Lake Memory Map/VT-d"),
                           Bridge("02.0", INTEL_XEON_PORT, up, link=(4, 16), acs=REDIRECT, number=5), numa=numa,
                           below4g=below4g, above4g=above4g)
    complexes = [
        RootComplex(0x00, host_bridge("00.0", 0x8086, 0x09a2, "Intel Corporation Ice Lake Memory Map/VT-d"),
                    Bridge("1c.0", INTEL_XEON_PORT, bmc_display(), link=(2, 1), acs=REDIRECT, number=1), numa=0,
                    above4g=0x100000000000),
        socket(0x16, 0, 0xb0000000, 0x200000000000), socket(0x97, 1, 0xd0000000, 0x240000000000)]
    files = stock(JAMMY, "intel_iommu=on iommu=pt", ubuntu_driver(
        JAMMY, "550.54.15", "Tue Mar  5 22:15:33 UTC 2024", "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04) ",
        "550.54.15-0ubuntu1")) | {"sys/firmware/acpi/tables/DMAR": ""}
    files |= board("Supermicro", "X12DPG-OA6", ("Supermicro", "SYS-420GP-TNR"), "0-127", "GenuineIntel")
    files |= numa_nodes("0-31,64-95", "32-63,96-127")
    return Machine(
        "rtx4090-x8-two-socket", "Eight RTX 4090 on two sockets, four behind each PCIe switch, ACS redirecting",
        "cases.md acsctl-grep-redirect-on, plx-pex8747-list (such boards), p2pbw+allreduce-8x4090-p2pdriver-works (two groups of four)",
        complexes, "identity", files | iommu_devices(("dmar0", "virtual"), ("dmar1", "virtual")),
        "acs-redirection", "every switch port redirects (ACS 0x001d): traffic below one switch climbs to the root port and back",
        ["IOMMU in passthrough"])


def no_gpu():
    root = RootComplex(
        0x00, host_bridge("00.0", 0x8086, 0x09a2, "Intel Corporation Ice Lake Memory Map/VT-d"),
        Bridge("1c.0", INTEL_XEON_PORT, bmc_display(), link=(2, 1), acs=0, number=1),
        Bridge("1c.4", INTEL_XEON_PORT, network(), link=(3, 4), acs=0, number=5),
        Bridge("1d.0", INTEL_XEON_PORT, nvme(), link=(4, 4), acs=0, number=9), numa=0)
    return Machine(
        "no-gpu", "A plain server without a GPU", "what remains of rtx4090-x8-two-socket without its cards",
        [root], None, stock(BOOKWORM, "quiet") | board("Supermicro", "X12SPL-F", cpu="GenuineIntel"),
        "gpu-inventory", "there is no NVIDIA display function on the PCI bus; the BMC's VGA function is not one", outlook="person")


def one_4090():
    root = RootComplex(
        0x00, *amd_common(0x1480, 0x1481, 0x1482, "Starship/Matisse"),
        Bridge("01.1", AMD_ZEN2_PORT, nvme(), link=(4, 4), acs=REDIRECT, number=1),
        Bridge("03.1", AMD_ZEN2_PORT, *gpu(RTX4090, bar1=32 * GIB, current=(IDLE, 16), driver="nouveau"), link=(4, 16),
               current=(IDLE, 16), acs=REDIRECT, number=2), *fch())
    return Machine(
        "one-4090", "A desktop with one RTX 4090, driven by nouveau", "the board of rtx3090-x4-epyc's chipset family with one card",
        [root], "DMA-FQ", stock(BOOKWORM, "quiet") | nouveau_loaded() | IVRS
        | iommu_devices(("ivhd0", "pci0000:00/0000:00:00.2")),
        "gpu-inventory", "P2P is between two GPUs, and there is one", ["nouveau is bound: no NVIDIA driver is installed"],
        outlook="person")


def machines():
    return [rtx4090_x2_am5(), rtx4090_x2_rebar_off(), rtx3090_x4_epyc(), rtx5090_x2_genoa(), rtx4090_x8_two_socket(),
            no_gpu(), one_4090()]
