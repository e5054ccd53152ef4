# SPDX-License-Identifier: MIT
"""Machines whose driver stays: what its options can do, and whose options they are. Facts: tests/driver_answers.yaml."""

from .cards import RTX3090, RTX4090, RTX5090
from .cases import IVHD, QEMU_BOARD, card, epyc, guest_tree, port
from .config_space import MIB
from .driver_answer import answers, informations
from .installed import installed
from .machines import UBUNTU_GCC13, Machine
from .proof_cases import FIRST, SECOND, by_hand, two_5090, works
from .stock import NOBLE, stock, ubuntu_driver

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
            "etc/os-release": 'NAME="Linux"\nVERSION_ID=43\nID=fedora\nPRETTY_NAME="Fedora Linux 43"\n'},
        "virtualization", "p2pd has no driver for this distribution that is made to give P2P, and others ask the emulated chipset",
        (), False, outlook="person")


def option_cases():
    return [guest_without_a_build(), ga102_small_bar1(), blackwell_580(), bridged(), foreign_build()]
