# SPDX-License-Identifier: MIT
"""Machines as people have them at the end of 2026: kernels from 6.12 to 7.3, the distribution's own open driver."""

from .cards import RTX3090, RTX4090, RTX5090
from .cases import IVHD, card, epyc, port
from .driver_answer import informations
from .installed import board
from .machines import IDLE, UBUNTU_GCC13, Machine, am5
from .proof_cases import FIRST, NOBLE_HWE, SECOND, two_5090
from .stock import DEBIAN, System, debian_driver, stock, ubuntu, ubuntu_driver, ubuntu_prebuilt_driver

NOBLE_614 = ubuntu("ubuntu24", "6.14.0-37-generic", "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13,
                   "6.14.0-37.37~24.04.1", "#37~24.04.1-Ubuntu SMP PREEMPT_DYNAMIC Thu Nov 20 10:25:38 UTC 2025")
RESOLUTE = ubuntu("ubuntu26", "7.0.0-34-generic", "x86_64-linux-gnu-gcc (Ubuntu 15.2.0-12ubuntu1) 15.2.0", 15, "7.0.0-34.34",
                  "#34-Ubuntu SMP PREEMPT_DYNAMIC Mon Sep 14 11:02:11 UTC 2026")


def debian13(kernel, built, what):
    compiler = "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"
    banner = f"Linux version {kernel} (debian-kernel@lists.debian.org) ({compiler}, GNU ld (GNU Binutils for Debian) 2.44) {what}"
    return System("debian13", kernel, compiler, 14, built, banner, DEBIAN["debian13"])


TRIXIE = debian13("6.12.117+deb13-amd64", "6.12.117-1", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-10-18)")
TRIXIE_BACKPORTS = debian13("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-12)")
KNOWS_EXCLUDE_BARS = "int pci_resize_resource(struct pci_dev *dev, int i, int size,\n\t\t\t\tint exclude_bars);\n"


def newer_headers(system):
    """Headers that config/catalogue.yaml's compat rules search: a fourth argument since 6.19 and 6.12.107; the rest since 7.2."""
    here = f"usr/src/linux-headers-{system.kernel}/include/"
    since_7_2 = {here + "linux/of_gpio.h": "", here + "linux/string.h": "", here + "drm/drm_atomic.h": "struct drm_atomic_commit {\n"}
    major, minor = map(int, system.kernel.split(".")[:2])
    return {here + "linux/pci.h": KNOWS_EXCLUDE_BARS} | (since_7_2 if (major, minor) >= (7, 2) else {})


def stock_machine(name, title, system, model, version, driver, why, complexes=None, more=None, cause="nvidia-driver"):
    files = stock(system, "quiet splash iommu=pt" if system.release.startswith("ubuntu") else "quiet iommu=pt", driver)
    return Machine(name, title, "issue 4/9 (records of today's machines), field-notes.md, After ready (kernels to build for)",
                   complexes or epyc(), "identity", files | IVHD | informations((FIRST, model), (SECOND, model), version=version) | (more or {}),
                   cause, why, (), False)


STOCK = "the loaded driver is the distribution's, which refuses P2P between these cards"


def noble(name, title, system, model, complexes=None, more=None, version="580.95.05", cause="nvidia-driver", why=STOCK):
    driver = ubuntu_driver(system, version, "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, f"{version}-0ubuntu0.24.04.1")
    return stock_machine(name, title, system, model, version, driver, why, complexes, more, cause)


def desktop():
    """As its installer and ubuntu-drivers leave it, with a monitor on the board: nothing was ever compiled there."""
    version, card = "580.178.04", "sys/class/drm/card"
    driver = ubuntu_prebuilt_driver(NOBLE_HWE, version, "Mon Aug 24 08:14:02 UTC 2026", UBUNTU_GCC13, f"{version}-0ubuntu0.24.04.1", "generic-hwe-24.04")
    files = stock(NOBLE_HWE, "quiet splash", driver, without=("dkms", "g++", "gcc", "gcc-13", "git", "make"))
    files |= board("ASUSTeK COMPUTER INC.", "ProArt X670E-CREATOR WIFI", ("ASUS", "System Product Name"))
    for number, (address, output, status) in enumerate((("04", "HDMI-A-1", "connected"), ("01", "DP-1", "disconnected"), ("03", "DP-2", "disconnected"))):
        connector = f"{card}{number}-{output}/"
        files |= {f"{card}{number}/device": ("link", f"../../../bus/pci/devices/0000:{address}:00.0"), connector + "status": status + "\n",
                  connector + "enabled": "enabled\n" if status == "connected" else "disabled\n"}
    return Machine(
        "ubuntu24-hwe-desktop-rtx4090-x2", "Two RTX 4090 in a desktop, Ubuntu 24.04 HWE with the signed modules of its packages",
        "field-notes.md, After ready (Ubuntu 24.04 HWE is at 6.17), section 2 (IOMMU, ACS); linux-restricted-modules of Ubuntu", [am5()],
        "DMA-FQ", files | IVHD | informations((FIRST, RTX4090), ("0000:03:00.0", RTX4090), version=version), "iommu",
        "the IOMMU translates and the ports redirect, as Linux leaves them; behind that, the distribution's modules refuse P2P between these cards",
        ["the monitor is on the processor's own GPU", "no compiler, no DKMS: modules come from packages"], False)


def resolute():
    version = "580.178.04"
    driver = ubuntu_driver(RESOLUTE, version, "Mon Aug 24 08:14:02 UTC 2026", "gcc version 15.2.0 (Ubuntu 15.2.0-12ubuntu1) ", f"{version}-0ubuntu0.26.04.1")
    return stock_machine("ubuntu26-rtx4090-x2", "Two RTX 4090, Ubuntu 26.04 on kernel 7.0 with its own driver", RESOLUTE, RTX4090, version, driver, STOCK, more=newer_headers(RESOLUTE))


def trixie(name, title, system):
    version = "550.163.01"
    driver = debian_driver(version, "Fri Apr 11 16:23:08 UTC 2025", "gcc version 14.2.0 (Debian 14.2.0-19) ", "550.163.01-2", system=system)
    return stock_machine(name, title, system, RTX4090, version, driver, STOCK, more=newer_headers(system))


def ampere_pair():
    cards = dict(model=RTX3090)
    return epyc(port("01.1", card(**cards), current=(IDLE, 16)), port("03.1", card(**cards), number=2, current=(IDLE, 16)))


def todays_cases():
    return [
        noble("ubuntu24-6.14-rtx4090-x2", "Two RTX 4090, Ubuntu 24.04 HWE on kernel 6.14 with its own driver", NOBLE_614, RTX4090),
        noble("ubuntu24-6.17-rtx4090-x2", "Two RTX 4090, Ubuntu 24.04 HWE on kernel 6.17 with its own driver", NOBLE_HWE, RTX4090),
        desktop(),
        resolute(),
        trixie("debian13-rtx4090-x2", "Two RTX 4090, Debian 13 on kernel 6.12.117 with its own driver", TRIXIE),
        trixie("debian13-backports-rtx4090-x2", "Two RTX 4090, Debian 13 on the backported kernel 7.3.4 with its own driver", TRIXIE_BACKPORTS),
        noble("ubuntu24-rtx5090-x2", "Two RTX 5090, Ubuntu 24.04 HWE on kernel 6.17 with its own driver", NOBLE_HWE, RTX5090, two_5090(),
              cause="modprobe-options", why="NVIDIA's own modules have P2P for these cards, and nothing switches it on"),
        noble("ubuntu24-rtx5090-x2-595", "Two RTX 5090, Ubuntu 24.04 HWE on kernel 6.17 with NVIDIA's driver 595.45.04", NOBLE_HWE, RTX5090, two_5090(), version="595.45.04",
              cause="modprobe-options", why="NVIDIA's own modules have P2P for these cards, and nothing switches it on"),
        noble("ubuntu24-rtx3090-x2", "Two RTX 3090, Ubuntu 24.04 HWE on kernel 6.17 with its own driver", NOBLE_HWE, RTX3090, ampere_pair(),
              cause="modprobe-options", why="NVIDIA's own modules have P2P over the mailbox for these cards, and nothing switches it on"),
    ]
