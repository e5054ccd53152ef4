# SPDX-License-Identifier: MIT
"""Machines whose driver says that their GPUs reach each other, however that came about: only the proof is missing."""

from .cards import A100, A100_SXM, L40S, RTX3090, RTX4090, RTX5090, RTXPRO6000
from .cases import IVHD, QEMU_BOARD, card, epyc, guest_tree, port
from .config_space import GIB, MIB
from .driver_answer import answers
from .installed import KERNEL, PACKAGES, board, efi, installed, kernel_log, load_lines, loaded, modules, packages, userspace
from .machines import IDLE, REDIRECT, UBUNTU_GCC13, Machine, amd_common, iommu_devices, numa_nodes
from .software import PARAMS, Driver
from .stock import BOOKWORM, JAMMY, NOBLE, debian_driver, stock, ubuntu, ubuntu_driver
from .topology import AMD_GENOA_PORT, MEM64, PEX88096_DOWN, PEX88096_UP, Bridge, Function, RootComplex

NOBLE_HWE = ubuntu("ubuntu24", "6.17.0-14-generic", "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13,
                   "6.17.0-14.14~24.04.1", "#14~24.04.1-Ubuntu SMP PREEMPT_DYNAMIC Thu Jan 15 15:52:10 UTC 2026")
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
OK_TO_ALL = "the driver says OK to every pair"
PARAMS_FILE = "proc/driver/nvidia/params"


def works(name, title, source, complexes, iommu, files, why, notes=()):
    """A machine that wants nothing but the proof."""
    return Machine(name, title, source, complexes, iommu, files, None, f"{OK_TO_ALL}: {why}", notes, False)


def with_options(files, registry=""):
    """NVreg_EnableResizableBar=1, and `registry`, in modprobe.d and in force."""
    line = "options nvidia NVreg_EnableResizableBar=1" + (f' NVreg_RegistryDwords="{registry}"' if registry else "") + "\n"
    params = (PARAMS % registry).replace("EnableResizableBar: 0", "EnableResizableBar: 1")
    return files | {"etc/modprobe.d/nvidia-p2p.conf": line, PARAMS_FILE: params}


def by_hand(system, version, built, arguments):
    """Modules that somebody patched and installed beside the libraries of NVIDIA's runfile."""
    return with_options(
        stock(system, arguments) | Driver(version, built, UBUNTU_GCC13).files | userspace(version) | loaded(version)
        | modules(system.kernel, version, suffix=system.module_suffix) | kernel_log(*load_lines(version), banner=system.banner)
        | {"usr/bin/nvidia-smi": ("program", b""), "usr/bin/nvidia-uninstall": ("program", b"")})


def hand_patched():
    return works(
        "rtx4090-x2-hand-patched", "Two RTX 4090, modules 595.71.05 patched by hand, kernel 6.17",
        "field-notes.md section 1 (forks at 595.71.05) and, After ready, kernels to build for (Ubuntu 24.04 HWE is at 6.17)", epyc(),
        "identity", by_hand(NOBLE_HWE, "595.71.05", "Wed Mar 18 09:12:44 UTC 2026", "quiet splash iommu=pt") | IVHD
        | answers((FIRST, RTX4090), (SECOND, RTX4090), version="595.71.05"),
        "that no build of the catalogue fits kernel 6.17 matters to nobody who needs none")


def hand_patched_iommu():
    return Machine(
        "rtx4090-x2-hand-patched-iommu", "Two RTX 4090, modules 595.71.05 patched by hand, kernel 6.17, the IOMMU translates",
        "field-notes.md section 2 (AMD-Vi IO_PAGE_FAULT: iommu=pt), issue 3/9 (a catalogue entry is required by the fix that needs it)",
        epyc(), "DMA-FQ", by_hand(NOBLE_HWE, "595.71.05", "Wed Mar 18 09:12:44 UTC 2026", "quiet splash") | IVHD
        | answers((FIRST, RTX4090), (SECOND, RTX4090), version="595.71.05"), "iommu",
        "the driver says OK to every pair, and iommu=pt is all that has to change: that no build of the catalogue fits is in nobody's way",
        (), False)


def nccl_disabled():
    return works(
        "rtx4090-x4-nccl-disabled", "Four RTX 4090 patched by hand; NCCL_P2P_DISABLE=1 is left over from a time without P2P",
        "field-cases-3.md, Others (NCCL_P2P_DISABLE in /etc/environment, /etc/profile.d, /etc/nccl.conf)",
        epyc(*(port(f"0{2 * i + 1}.1", card(), number=i + 1) for i in range(4))), "identity",
        by_hand(NOBLE_HWE, "595.71.05", "Wed Mar 18 09:12:44 UTC 2026", "quiet splash iommu=pt") | IVHD
        | answers(*((f"0000:0{i + 1}:00.0", RTX4090) for i in range(4)), version="595.71.05")
        | {"etc/environment": 'PATH="/usr/local/bin:/usr/bin"\nNCCL_P2P_DISABLE=1\n',
           "etc/profile.d/nccl.sh": "# for PyTorch\nexport NCCL_P2P_LEVEL=LOC\n",
           "etc/systemd/system.conf": "[Manager]\n#DefaultEnvironment=\nDefaultEnvironment=\"NCCL_P2P_DISABLE=1\" A=b\n"},
        "what keeps NCCL from it is a warning on the first screen")


def third_for_a_guest():
    taken = card(driver="vfio-pci", audio_driver="vfio-pci")
    return Machine(
        "rtx4090-x3-one-for-guest", "Three RTX 4090, one of them a guest's, modules patched by hand, the IOMMU translates",
        "field-notes.md section 2, IOMMU notes (refuse on VFIO hosts)",
        epyc(port("01.1", card()), port("03.1", card(), number=2), port("05.1", taken, number=3)), "DMA-FQ",
        by_hand(NOBLE_HWE, "595.71.05", "Wed Mar 18 09:12:44 UTC 2026", "quiet splash") | IVHD
        | answers((FIRST, RTX4090), (SECOND, RTX4090), version="595.71.05"), "iommu",
        "iommu=pt is wanted, and the guest's isolation rests on an IOMMU that translates: a person decides", (), False,
        outlook="person", blocked_by="no-vfio")


def two_5090():
    cards, slot = dict(model=RTX5090), dict(model=AMD_GENOA_PORT, link=(5, 16), current=(IDLE, 16))
    return epyc(port("01.1", card(**cards), **slot), port("03.1", card(**cards), number=2, **slot))


def blackwell_files():
    version = "595.45.04"
    files = stock(NOBLE, "quiet splash iommu=pt", ubuntu_driver(
        NOBLE, version, "Tue Jan 27 21:05:40 UTC 2026", UBUNTU_GCC13, "595.45.04-0ubuntu0.24.04.1"))
    return with_options(files, "ForceP2P=0x11;RMPcieP2PType=1;RMForceStaticBar1=1") | IVHD | answers(
        (FIRST, RTX5090), (SECOND, RTX5090), version=version)


def blackwell_stock():
    return works(
        "rtx5090-x2-driver-ok", "Two RTX 5090, the distribution's open driver with registry keys for P2P over BAR1",
        "field-notes.md, After ready (RTX 50: NVIDIA's own BAR1 code is bound; ForceP2P, RMPcieP2PType and RMForceStaticBar1)",
        two_5090(), "identity", blackwell_files(), "whether a driver from packages can do that is what the proof finds out")


def blackwell_xid79():
    files = blackwell_files()
    xid = "3,1300,9400000,-;NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    return Machine(
        "rtx5090-x2-xid79", "Two RTX 5090 whose driver says OK, one of which fell off the bus on this boot",
        "issue 3/9 (an Xid 79 on this boot makes a proof dangerous), cases.md xid79-comma-fraction-timestamp", two_5090(), "identity",
        files | {"dev/kmsg": files["dev/kmsg"] + xid}, "kernel-log",
        "the driver's word is older than the fault: nothing is tried before power was cycled",
        ["the card answers on the bus again, and nothing else is in the way but a driver from packages"], False, outlook="person")


def pro_6000():
    version, cards = "580.95.05", dict(model=RTXPRO6000, bar1=128 * GIB)
    slot = dict(model=AMD_GENOA_PORT, link=(5, 16), current=(IDLE, 16))
    files = stock(NOBLE, "quiet splash iommu=pt", ubuntu_driver(
        NOBLE, version, "Tue Sep 23 10:11:16 UTC 2025", UBUNTU_GCC13, "580.95.05-0ubuntu0.24.04.1"))
    return works(
        "rtxpro6000-x2", "Two RTX PRO 6000 Blackwell with the stock open driver",
        "field-notes.md section 5 (PRO 6000 cross-socket), cases.md nn-4x-rtxpro6000-server-3d-controller",
        epyc(port("01.1", card(**cards), **slot), port("03.1", card(**cards), number=2, **slot)), "identity",
        files | IVHD | answers((FIRST, RTXPRO6000), (SECOND, RTXPRO6000), version=version),
        "NVIDIA's own driver gives P2P between professional cards")


def a100_pair():
    version, cards = "570.133.20", dict(model=A100, bar1=128 * GIB, current=(4, 16))
    slot = dict(current=(4, 16))
    files = stock(JAMMY, "", ubuntu_driver(
        JAMMY, version, "Sun Mar 23 12:51:43 UTC 2025", "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04) ", "570.133.20-0ubuntu0.22.04.1"))
    return works(
        "a100-x2-iommu-default", "Two A100 PCIe, stock driver, the IOMMU translates because nothing was asked of it",
        "issue 3/9 (a data centre's host with a translating IOMMU needs no iommu=pt), cases.md topo-p2p-8xA100-ok",
        epyc(port("01.1", card(**cards), **slot), port("03.1", card(**cards), number=2, **slot)), "DMA-FQ",
        files | IVHD | answers((FIRST, A100), (SECOND, A100), version=version),
        "NVIDIA's own driver tells the IOMMU what these cards address of each other")


def l40s_pair():
    version, cards = "550.163.01", dict(model=L40S, bar1=64 * GIB)
    slot = dict(current=(IDLE, 16), acs=REDIRECT)
    files = stock(BOOKWORM, "quiet", debian_driver(
        version, "Fri Apr 11 16:23:08 UTC 2025", "gcc version 12.2.0 (Debian 12.2.0-14) ", "550.163.01-2~bpo12+1", open_module=False))
    return works(
        "l40s-x2", "Two L40S with the distribution's proprietary driver, root ports that redirect",
        "issue 3/9 (stock driver, data centre cards), field-notes.md section 5 (PCIe cards of data centres)",
        epyc(port("01.1", card(**cards), **slot), port("03.1", card(**cards), number=2, **slot)), None,
        files | answers((FIRST, L40S), (SECOND, L40S), version=version), "the proprietary modules give P2P between cards of data centres",
        ["IOMMU off in the firmware"])


def dgx():
    version, buses = "570.133.20", (0x00, 0x40, 0x80, 0xc0)
    cards = dict(model=A100_SXM, bar1=128 * GIB, current=(4, 16))

    def pair():
        ports = [port(f"{at:02x}.0", card(**cards), PEX88096_DOWN, at, current=(4, 16), acs=REDIRECT) for at in (0, 1)]
        return port("01.1", [Bridge("00.0", PEX88096_UP, *ports, link=(4, 16))], current=(4, 16), acs=REDIRECT)

    def nvswitch(number):
        return port(f"03.{number}", [Function("00.0", 0x10de, 0x1af1, 0x068000, "NVIDIA Corporation GA100 [A100 NVSwitch]", "nvidia-nvswitch",
                                              0xa1, (0x10de, 0x1467), [(0, 32 * MIB, MEM64)])], number=number + 1, current=(4, 16), acs=REDIRECT)
    complexes = [RootComplex(bus, *amd_common(0x1480, 0x1481, 0x1482, "Starship/Matisse")[:2], pair(),
                             *(nvswitch(number) for number in range(1, 7) if bus == 0xc0), numa=n // 2, below4g=0xa0000000 + n * 0x10000000, above4g=0x20000000000 + n * 0x10000000000)
                 for n, bus in enumerate(buses)]
    gpus = [(f"0000:{bus + at:02x}:00.0", A100_SXM) for bus in buses for at in (3, 4)]
    files = stock(JAMMY, "", ubuntu_driver(
        JAMMY, version, "Sun Mar 23 12:51:43 UTC 2025", "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04) ", "570.133.20-0ubuntu0.22.04.1"))
    files |= board("NVIDIA", "DGXA100", ("NVIDIA", "DGXA100 920-23687-2531-000"), "0-255") | numa_nodes("0-63,128-191", "64-127,192-255")
    units = iommu_devices(*((f"ivhd{n}", f"pci0000:{bus:02x}/0000:{bus:02x}:00.2") for n, bus in enumerate(buses)))
    return works(
        "dgx-a100", "Eight A100 on NVSwitch, stock driver, an IOMMU that translates, switch ports that redirect",
        "issue 3/9 (DGX with a translating IOMMU), cases.md topo-p2p-8xA100-ok", complexes, "DMA-FQ",
        files | units | {"sys/firmware/acpi/tables/IVRS": ""} | answers(*gpus, version=version, nvlink=True, topology="SYS"),
        "what they say to each other goes over NVLink, whatever IOMMU and ACS do to PCIe",
        ["the network cards and disks of such a host are left out"])


def systemd_booted(arguments):
    """A Debian 12 that systemd-boot starts; GRUB is not installed."""
    files = {path: text for path, text in installed(arguments).items() if not path.endswith("update-grub") and path != "etc/default/grub"}
    base = {name: version for name, version in PACKAGES.items() if not name.startswith("grub")}
    return files | packages({"systemd-boot": "252.38-1~deb12u1"}, base=base) | efi(loader="systemd-boot 252.38-1~deb12u1") | {
        "etc/kernel/cmdline": f"root=/dev/nvme0n1p2 ro {arguments}\n",
        "proc/cmdline": rf"initrd=\debian\{KERNEL}\initrd.img-{KERNEL} root=/dev/nvme0n1p2 ro {arguments}" + "\n"}


def systemd_boot():
    return works(
        "rtx4090-x2-systemd-boot", "Two RTX 4090, patched driver, booted by systemd-boot with the arguments it needs",
        "issue 3/9 (systemd-boot hosts that need no argument)", epyc(), "identity",
        systemd_booted("quiet iommu=pt") | IVHD | answers((FIRST, RTX4090), (SECOND, RTX4090)),
        "which loader it is matters only where arguments are wanted")


def systemd_boot_iommu():
    return Machine(
        "rtx4090-x2-systemd-boot-iommu", "Two RTX 4090, patched driver, booted by systemd-boot, the IOMMU translates",
        "issue 3/9 (systemd-boot), field-notes.md section 2 (IO_PAGE_FAULT: iommu=pt)", epyc(), "DMA-FQ",
        systemd_booted("quiet") | IVHD | answers((FIRST, RTX4090), (SECOND, RTX4090)), "iommu",
        "a proof below a patched driver and a translating IOMMU is dangerous: iommu=pt is tried for one boot first",
        ["iommu=pt in the boot entries and in /etc/kernel/cmdline"], False)


def guest_clique():
    return works(
        "rtx3090-x2-guest-clique", "Two RTX 3090 in a virtual machine whose hypervisor put them into one GPUDirect clique",
        "field-notes.md section 2 (CNS inside VM: x-nv-gpudirect-clique), section 5 (3090: 27.1 GB/s in a guest with a clique)",
        guest_tree(clique=0), None, installed("quiet") | QEMU_BOARD
        | answers((FIRST, RTX3090), (SECOND, RTX3090), topology="PHB"),
        "the clique stands for the chipset that the guest cannot see")


def proof_cases():
    return [hand_patched(), hand_patched_iommu(), nccl_disabled(), third_for_a_guest(), blackwell_stock(), blackwell_xid79(), pro_6000(), a100_pair(), l40s_pair(), dgx(), systemd_boot(),
            systemd_boot_iommu(), guest_clique()]
