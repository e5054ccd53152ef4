# SPDX-License-Identifier: MIT
"""Machines whose driver stays: what its options can do, and whose options they are. Facts: tests/driver_answers.yaml."""

from .cards import RTX3090, RTX4090, RTX5090
from .cases import DMAR, IVHD, QEMU_BOARD, card, epyc, guest_tree, port
from .config_space import MIB
from .driver_answer import answers, informations
from .installed import board, installed
from .machines import REDIRECT, UBUNTU_GCC13, Machine, host_bridge
from .proof_cases import FIRST, SECOND, by_hand, two_5090, works
from .stock import NOBLE, StockDriver, stock, ubuntu_driver
from .topology import INTEL_XEON_PORT, PEX88096_DOWN, PEX88096_UP, Bridge, RootComplex

THIRD, FOURTH = "0000:03:00.0", "0000:04:00.0"
FAR = "the driver says CNS: its own modules ask the chipset, unless ForceP2P is set"


def ubuntu_open(version):
    """NOBLE with the distribution's open driver."""
    return stock(NOBLE, "quiet splash iommu=pt", ubuntu_driver(
        NOBLE, version, "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, f"{version}-0ubuntu0.24.04.1")) | IVHD


def ga102_small_bar1():
    cards = dict(model=RTX3090, bar1=256 * MIB, rebar=False)
    return Machine(
        "rtx3090-x2-old-vbios-stock", "Two RTX 3090 whose vBIOS has no Resizable BAR, the distribution's open driver 580",
        "field-notes.md section 1, hard limits (early 3090 vBIOS caps BAR1 at 256 MiB), driver-answers.md (the mailbox of GA102)",
        epyc(port("01.1", card(**cards)), port("03.1", card(**cards), number=2)), "identity",
        ubuntu_open("580.95.05") | answers((FIRST, RTX3090), (SECOND, RTX3090), version="580.95.05", refused=[FIRST, SECOND],
                                           word="CNS", small=[FIRST, SECOND]),
        "modprobe-options", FAR + "; the mailbox of these cards takes no room in BAR1, and an option enables it", (), False)


def blackwell_580():
    return Machine(
        "rtx5090-x2-stock-580", "Two RTX 5090, the distribution's open driver 580",
        "driver-answers.md (580: GB202 with ForceP2P=0x11 and RMPcieP2PType=1: BAR1, mapped)", two_5090(), "identity",
        ubuntu_open("580.95.05") | answers((FIRST, RTX5090), (SECOND, RTX5090), version="580.95.05", refused=[FIRST, SECOND], word="CNS"),
        "modprobe-options", FAR + "; 580 maps BAR1 of these cards, and options enable it", (), False)


def bridged():
    """Four cards, each two with a bridge, modules 580.105.08 patched by hand: NVLink is in force where there is a bridge."""
    ports = [port(slot, card(model=RTX3090), number=n) for n, slot in enumerate(("01.1", "03.1", "05.1", "07.1"), 1)]
    files = by_hand(NOBLE, "580.105.08", "Wed Oct 29 22:15:27 UTC 2025", "quiet splash iommu=pt")
    line = "options nvidia NVreg_EnableResizableBar=1 NVreg_RegistryDwords=\"ForceP2P=0x11;RMPcieP2PType=1;PeerMappingOverride=1\"\n"
    params = files["proc/driver/nvidia/params"].replace('RegistryDwords: ""', 'RegistryDwords: "ForceP2P=17;RMPcieP2PType=1;PeerMappingOverride=1"', 1)
    return works(
        "rtx3090-x4-bridged", "Four RTX 3090 in two NVLink pairs, modules 580.105.08 patched by hand",
        "field-notes.md, Third look (RMForceP2PType=1 makes RM refuse NVLink), driver-answers.md (ForceP2P=0x11 and RMPcieP2PType=1 keep it)",
        epyc(*ports), "identity", files | IVHD | {"etc/modprobe.d/nvidia-p2p.conf": line, "proc/driver/nvidia/params": params}
        | answers(*((gpu, RTX3090) for gpu in (FIRST, SECOND, THIRD, FOURTH)), version="580.105.08",
                  bridges=[(FIRST, SECOND), (THIRD, FOURTH)]),
        "the bridged pairs keep their NVLink, and the others go over BAR1")


def foreign_build():
    """Field case f16, with cards that options alone do not help."""
    return Machine(
        "rtx4090-x2-foreign-570-cns", "Two RTX 4090, a fork's 570.86.16 installed by hand, the driver answers CNS",
        "field-cases-3.md f16 (keys of the chosen build were written while another driver ran)", epyc(), "identity",
        by_hand(NOBLE, "570.86.16", "Fri Jan 24 21:06:34 UTC 2025", "quiet splash iommu=pt") | IVHD
        | answers((FIRST, RTX4090), (SECOND, RTX4090), version="570.86.16", refused=[FIRST, SECOND], word="CNS"),
        "driver-peers", "the driver is replaced first: the options of another build are not those of this one", (), False)


def guest_without_a_build():
    return Machine(
        "rtx4090-x2-guest-fedora", "Two RTX 4090 passed through to a virtual machine with Fedora",
        "field-notes.md section 2 (CNS inside VM)", guest_tree(model=RTX4090), None,
        installed("quiet") | informations((FIRST, RTX4090), (SECOND, RTX4090)) | QEMU_BOARD | {
            "etc/os-release": 'NAME="Fedora Linux"\nVERSION_ID=43\nID=fedora\nPRETTY_NAME="Fedora Linux 43"\n'},
        "virtualization", "p2pd has no driver for this distribution that is made to give P2P, and others ask the emulated chipset",
        (), False, outlook="person")


def four_3090(name, title, bridges=()):
    """NVIDIA's apt repository has the same open modules as Ubuntu's, through DKMS."""
    ports = [port(slot, card(model=RTX3090), number=n, acs=REDIRECT) for n, slot in enumerate(("01.1", "03.1", "05.1", "07.1"), 1)]
    gpus = tuple((gpu, RTX3090) for gpu in (FIRST, SECOND, THIRD, FOURTH))
    return Machine(name, title, "issue 2/8 (machines of the review), driver-answers.md (GA102 on stock 580)", epyc(*ports), "DMA-FQ",
                   stock(NOBLE, "quiet splash", ubuntu_driver(NOBLE, "580.95.05", "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, "580.95.05-0ubuntu1")) | IVHD
                   | answers(*gpus, version="580.95.05", refused=[gpu for gpu, _ in gpus], word="CNS", bridges=bridges), "iommu",
                   "the IOMMU translates and the ports redirect; behind that, an option enables the mailbox of these cards", (), False)


def four_behind_switch():
    ports = [port(f"{slot:02x}.0", card(), PEX88096_DOWN, slot, acs=REDIRECT) for slot in (0, 4, 8, 12)]
    tree = [RootComplex(0x00, host_bridge("00.0", 0x8086, 0x09a2, "Intel Corporation Ice Lake Memory Map/VT-d"),
                        Bridge("02.0", INTEL_XEON_PORT, Bridge("00.0", PEX88096_UP, *ports, link=(4, 16)), link=(4, 16), acs=REDIRECT, number=5),
                        numa=0, above4g=0x200000000000)]
    gpus = tuple((f"0000:{bus:02x}:00.0", RTX4090) for bus in (3, 4, 5, 6))
    return Machine("rtx4090-x4-switch", "Four RTX 4090 below one switch, the distribution's open driver 580",
                   "issue 2/8 (machines of the review), field-notes.md section 2 (same switch: ACS)", tree, "DMA-FQ",
                   stock(NOBLE, "quiet splash", ubuntu_driver(NOBLE, "580.95.05", "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, "580.95.05-0ubuntu0.24.04.1"))
                   | DMAR | board(cpu="GenuineIntel") | answers(*gpus, version="580.95.05", refused=[gpu for gpu, _ in gpus], word="CNS"), "iommu",
                   "the IOMMU translates, and the switch's ports redirect what need not climb to the root port", (), False)


def runfile_by_dkms():
    version = "580.95.05"
    driver = StockDriver(NOBLE, version, "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, "nvidia", {}, (), "")
    files = stock(NOBLE, "quiet splash", driver) | {"usr/bin/nvidia-uninstall": ("program", b"")}
    return Machine("rtx4090-x2-runfile-dkms", "Two RTX 4090, NVIDIA's runfile 580.95.05 with its open modules in DKMS",
                   "issue 2/8 (machines of the review), field-notes.md, After ready (nvidia-installer registers with DKMS)", epyc(), "DMA-FQ",
                   files | IVHD | answers((FIRST, RTX4090), (SECOND, RTX4090), version=version, refused=[FIRST, SECOND], word="CNS"), "iommu",
                   "the IOMMU translates; behind that, NVIDIA's own modules refuse P2P between these cards", (), False)


def option_cases():
    return [four_3090("rtx3090-x4-stock", "Four RTX 3090, NVIDIA's open driver 580 from its repository"),
            four_3090("rtx3090-x4-stock-bridged", "Four RTX 3090 in two NVLink pairs, NVIDIA's open driver 580 from its repository",
                      [(FIRST, SECOND), (THIRD, FOURTH)]),
            four_behind_switch(), runfile_by_dkms(), guest_without_a_build(), ga102_small_bar1(), blackwell_580(), bridged(), foreign_build()]
