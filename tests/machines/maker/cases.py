# SPDX-License-Identifier: MIT
"""Machines that differ from a healthy one by one gate of hardware, firmware or boot, which doctor must name first."""

import copy

from .cards import RTX2080TI, RTX3090, RTX4090, gpu
from .config_space import MIB
from .driver_answer import answers, command, informations
from .installed import (KERNEL, board, efi, headers, installed, kernel_image, kernel_log, load_lines, modules, mounted,
                        packages)
from .machines import IDLE, REDIRECT, Machine, amd_common, host_bridge, iommu_devices, nvme
from .stock import NOBLE, stock, ubuntu, ubuntu_driver
from .topology import (AMD_ZEN2_PORT, INTEL_PEG_PORT, INTEL_XEON_PORT, MEM64, PEX88096_DOWN, PEX88096_UP, VIRTUAL_PORT, Bridge,
                       Function, RootComplex)

IVHD = iommu_devices(("ivhd0", "pci0000:00/0000:00:00.2")) | {"sys/firmware/acpi/tables/IVRS": ""}
DMAR = iommu_devices(("dmar0", "virtual")) | {"sys/firmware/acpi/tables/DMAR": ""}
RESIZED = ["a healthy host otherwise: BAR1 32 GiB, ports that do not redirect, IOMMU in passthrough, patched 570.86.16"]


def port(slot, cards, model=AMD_ZEN2_PORT, number=1, **options):
    return Bridge(slot, model, *cards, **(dict(link=(4, 16), current=(IDLE, 16), acs=0, number=number) | options))


def card(model=RTX4090, **options):
    return gpu(model, **(dict(current=(IDLE, 16), short=True) | options))


def epyc(*ports, **options):
    """One root complex of an EPYC board with the cards on root ports; idle links, ACS there and off."""
    ports = ports or (port("01.1", card()), port("03.1", card(), number=2))
    return [RootComplex(0x00, *amd_common(0x1480, 0x1481, 0x1482, "Starship/Matisse")[:2], *ports,
                        **(dict(numa=0, above4g=0x20000000000) | options))]


TWO_4090 = informations(("0000:01:00.0", RTX4090), ("0000:02:00.0", RTX4090))


def healthy():
    name = "rtx4090-x2-healthy"
    return Machine(name, "Two RTX 4090, patched driver, nothing in the way", "field-notes.md section 1 (success: BAR1 covers VRAM), "
                   "cases.md bar1-static-mapping-success", epyc(), "identity",
                   installed() | TWO_4090 | IVHD | kernel_log(*load_lines(), *mapped()), None,
                   "every gate is open and idle links at 2.5 GT/s are no fault: only the proof is missing",
                   ["modules from make modules_install of aikitoria/570.86.16-p2p, userspace from the runfile"], False)


def mapped():
    return [f"NVRM: GPU{n} kbusEnableStaticBar1Mapping_TU102: Static bar1 mapped offset 0x0 size 0x5ff200000" for n in (0, 1)]


def above4g_off():
    name, small = "rtx4090-x2-above4g-off", dict(bar1=256 * MIB)
    return Machine(name, "Two RTX 4090, Above 4G Decoding off in the firmware", "field-notes.md section 2 (ReBAR off or BAR1 < VRAM), "
                   "aikitoria issue 22", epyc(port("01.1", card(**small)), port("03.1", card(**small), number=2),
                                              above4g=0xc0000000),
                   "identity", installed() | TWO_4090 | IVHD, "bar1-size",
                   "the cards offer BAR1 sizes up to 32 GiB, but the firmware put 256 MiB below 4 GiB, where no more fits",
                   ["the windows of both ports lie below 4 GiB, exactly as large as BAR1 and BAR3"], False, outlook="person")


def switch_window():
    name = "rtx4090-x2-switch-window"
    down = port("00.0", card(bar1=256 * MIB), PEX88096_DOWN, 0)
    up = Bridge("00.0", PEX88096_UP, down, link=(4, 16), bars=[(0, 8 * MIB, MEM64)])
    return Machine(name, "Two RTX 4090, one behind a switch whose window holds 256 MiB", "field-notes.md section 3 (window = BAR1 + "
                   "BAR3: resize fails), cases.md arc-a380-behind-switch-rebar-window-conflict",
                   epyc(port("01.1", card()), port("03.1", [up], number=2)), "identity",
                   installed() | informations(("0000:01:00.0", RTX4090), ("0000:04:00.0", RTX4090)) | IVHD, "bar1-size",
                   "the root port above the switch passes on 296 MiB, and the switch's own BAR lies there, so that Linux leaves it",
                   ["firmware is fine: the other card has a BAR1 of 32 GiB",
                    "the windows within the switch hold nothing but the card, so that Linux would make them anew"], False, outlook="person")


def no_address():
    name = "rtx4090-x2-no-address"
    return Machine(name, "Two RTX 4090, one whose BAR1 has no address", "field-notes.md section 2, cases.md bar1-0M-no-mmio-window-m40",
                   epyc(port("01.1", card()), port("03.1", card(assigned=False), number=2)), "identity",
                   installed() | TWO_4090 | IVHD, "bridge-windows",
                   "firmware gave BAR1 of 02:00.0 no address though its bus has room: Linux looks for one with pci=realloc", (), False)


def switch_tree(down_acs):
    ports = [port(f"{slot:02x}.0", card(), PEX88096_DOWN, slot, acs=down_acs) for slot in (0, 4)]
    up = Bridge("00.0", PEX88096_UP, *ports, link=(4, 16))
    return [RootComplex(0x00, host_bridge("00.0", 0x8086, 0x09a2, "Intel Corporation Ice Lake Memory Map/VT-d"),
                        Bridge("02.0", INTEL_XEON_PORT, up, link=(4, 16), acs=REDIRECT, number=5),
                        Bridge("04.0", INTEL_XEON_PORT, nvme(), link=(4, 4), acs=REDIRECT, number=7), numa=0,
                        above4g=0x200000000000)]


def switch_acs():
    name = "rtx4090-x2-switch-acs"
    return Machine(name, "Two RTX 4090 below one switch whose ports redirect", "field-notes.md section 2 (same-switch bidirectional "
                   "~50 not ~103 GB/s: ACS), cases.md acsctl-grep-redirect-on", switch_tree(REDIRECT), "identity",
                   installed() | informations(("0000:03:00.0", RTX4090), ("0000:04:00.0", RTX4090)) | DMAR
                   | board(cpu="GenuineIntel"), "acs-redirection",
                   "the two switch ports where the pair diverges redirect (ACS 0x001d), so its traffic climbs to the root port",
                   ["the root ports redirect, too, but no pair diverges there"], False)


def acs_elsewhere():
    name = "rtx4090-x2-acs-elsewhere"
    return Machine(name, "Two RTX 4090 below one switch, ACS on only where no pair diverges", "bench-notes.md section 5 (only ports "
                   "where a pair diverges matter), issue 3/7", switch_tree(0), "identity",
                   installed() | informations(("0000:03:00.0", RTX4090), ("0000:04:00.0", RTX4090)) | DMAR
                   | board(cpu="GenuineIntel"), None,
                   "the root ports redirect, but the pair's traffic never reaches them: the switch ports do not", (), False)


def iommu_default():
    name = "rtx4090-x2-iommu-default"
    faults = [f"4|nvidia 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x{at:x} flags=0x0020]"
              for at in (0xd0001040, 0xd00007c0, 0xd0001e40)]
    return Machine(name, "Two RTX 4090, the IOMMU translates because nothing was asked of it", "cases.md "
                   "amdvi-io-page-fault-cuda-p2p-sample (cuda-samples issue 48), tinygrad issue 18", epyc(), "DMA-FQ",
                   installed("quiet") | TWO_4090 | IVHD | kernel_log(*load_lines(), *mapped(), *faults), "iommu",
                   "the AMD IOMMU is on by default and translates (DMA-FQ); the page faults in the log follow from it", (), False)


def iommu_asked():
    name = "rtx4090-x2-vtd-strict"
    ports = [port(f"01.{n}", card(width=8, current=(IDLE, 8)), INTEL_PEG_PORT, n + 2, link=(5, 8), current=(IDLE, 8))
             for n in (0, 1)]
    root = RootComplex(0x00, host_bridge("00.0", 0x8086, 0xa700, "Intel Corporation Raptor Lake-S Host Bridge/DRAM Controller"),
                       *ports, above4g=0x4000000000)
    fault = "3|DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x4800001000 [fault reason 0x05] PTE Write access is not set"
    return Machine(name, "Two RTX 4090, VT-d on by request and strict", "field-notes.md section 2 (Verification error: translating "
                   "IOMMU; Intel), tinygrad issue 30", [root], "DMA",
                   installed("quiet intel_iommu=on iommu.strict=1") | TWO_4090 | DMAR
                   | board("ASUSTeK COMPUTER INC.", "ProArt Z690-CREATOR WIFI", cpus="0-31", cpu="GenuineIntel")
                   | kernel_log(*load_lines(), "3|DMAR: DRHD: handling fault status reg 2", fault), "iommu",
                   "intel_iommu=on without iommu=pt: VT-d translates what the GPUs address", (), False)


def many_cpus():
    name = "rtx4090-x2-384-cpus"
    files = installed("quiet") | TWO_4090 | IVHD | board("Supermicro", "H13DSH", cpus="0-383")
    files["etc/default/grub"] = files["etc/default/grub"].replace('"quiet"', '"quiet amd_iommu=off iommu=off"')
    return Machine(name, "Two RTX 4090 on a board of 384 logical CPUs, iommu=off asked for the next boot", "field-notes.md section 2, "
                   "IOMMU notes (more than 255 logical CPUs cannot disable it: aikitoria issue 6)", epyc(), "DMA-FQ", files, "iommu",
                   "the IOMMU translates, and 384 logical CPUs need its interrupt remapping: iommu=pt, not the iommu=off that is asked",
                   ["/etc/default/grub asks for amd_iommu=off iommu=off; the running kernel does not have it"], False)


def link_x4():
    name, narrow = "rtx4090-x2-link-x4", dict(current=(IDLE, 4))
    return Machine(name, "Two RTX 4090, one link trained to four lanes of sixteen", "cases.md p2pbw-2x4090-x4-lanes-works-slow (tinygrad "
                   "issue 44)", epyc(port("01.1", card()), port("03.1", card(**narrow), number=2, **narrow)), "identity",
                   installed() | TWO_4090 | IVHD, None,
                   "port and card at 02:00.0 can sixteen lanes and run four: a quarter of the rate, and P2P works",
                   RESIZED, False)


def gen1_slot():
    name, slow = "rtx4090-x2-gen1-slot", dict(current=(1, 16))
    return Machine(name, "Two RTX 4090, one slot held at 2.5 GT/s", "field-notes.md section 2 (copies ~3 GB/s: link dropped to Gen1)",
                   epyc(port("01.1", card()), port("03.1", card(**slow), number=2, link=(1, 16), **slow)), "identity",
                   installed() | TWO_4090 | IVHD, "pcie-links",
                   "the port above 02:00.0 offers 2.5 GT/s at most, so the card cannot leave it under load as an idle one does",
                   RESIZED, False, outlook="person")


def lost_card():
    name, lost = "rtx4090-x2-lost-card", card()
    for function in lost:
        function.lost = True
    return Machine(name, "Two RTX 4090, one fell off the bus", "cases.md fallen-off-bus-egpu-5070, xid79-comma-fraction-timestamp",
                   epyc(port("01.1", card()), port("03.1", lost, number=2)), "identity",
                   installed() | TWO_4090 | IVHD | kernel_log(
                       *load_lines(), "3|NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                       "3|NVRM: GPU 0000:02:00.0: GPU has fallen off the bus."), "gpu-inventory",
                   "configuration space of 02:00.0 reads as all ones: the card does not answer until power is cycled",
                   ["lspci prints such a card with 4096 bytes of ff; here 256"], False, outlook="person")


def mixed():
    name = "rtx3090-rtx4090-mixed"
    return Machine(name, "An RTX 3090 beside an RTX 4090", "field-notes.md section 1 (cross-generation is blocked in libcuda: aikitoria "
                   "issue 40), cases.md simpleP2P-7gpu-mixed-generations-partial",
                   epyc(port("01.1", card(RTX3090)), port("03.1", card(), number=2)), "identity",
                   installed() | answers(("0000:01:00.0", RTX3090), ("0000:02:00.0", RTX4090), refused=["0000:01:00.0"], word="NS") | IVHD,
                   "gpu-generation",
                   "the CUDA library gives peer access within one generation only: between an Ampere and an Ada card there is none",
                   RESIZED, False, outlook="impossible")


def turing():
    name, old = "rtx2080ti-x2", dict(model=RTX2080TI, bar1=256 * MIB, rebar=False)
    slot = dict(link=(4, 16), current=(IDLE, 16))
    return Machine(name, "Two RTX 2080 Ti", "field-notes.md section 1 (2080 Ti: no working report), gpus-facts.yaml other_rules "
                   "(consumer Turing is not supported by the BAR1 path)",
                   epyc(port("01.1", card(**old), **slot), port("03.1", card(**old), number=2, **slot)), "identity",
                   installed() | answers(("0000:01:00.0", RTX2080TI), ("0000:02:00.0", RTX2080TI), refused=["0000:01:00.0"]) | IVHD,
                   "gpu-generation", "no patched driver supports consumer Turing: neither firmware nor settings help",
                   ["BAR1 is 256 MiB without the capability to grow, which follows from the same chip",
                    "the USB functions of such cards are left out"], False, outlook="impossible")


def converted_48g():
    name = "rtx4090-48g-x2"
    smi = "\n==============NVSMI LOG==============\n\nDriver Version                                         : 570.86.16\n\n" \
          "Attached GPUs                                          : 2\n" + "".join(
              f"GPU 00000000:0{n}:00.0\n    Product Name                                       : NVIDIA GeForce RTX 4090\n"
              "    Product Architecture                               : Ada Lovelace\n    FB Memory Usage\n"
              "        Total                                          : 49140 MiB\n    BAR1 Memory Usage\n"
              "        Total                                          : 32768 MiB\n" for n in (1, 2))
    return Machine(name, "Two RTX 4090 converted to 48 GB", "field-notes.md section 1, hard limits (4090 48 GB has a 32 GiB BAR: "
                   "aikitoria issue 14), tinygrad issue 36", epyc(), "identity",
                   installed() | TWO_4090 | IVHD | {"commands/nvidia-smi-q.json": command(["nvidia-smi", "-q"], smi)},
                   "bar1-size", "BAR1 is 32 GiB, the most the chip offers, and cannot cover 48 GiB of VRAM: a build with dynamic BAR1 may",
                   ["the PCI id is that of the 24 GB card: only the driver tells the VRAM",
                    "the output of nvidia-smi -q holds only what this case is about"], False, outlook="person")


def guest_tree(**card_options):
    """PCI tree of a Q35 machine of QEMU with two cards in passthrough."""
    shown = dict(model=RTX3090, rebar=False, current=(4, 16)) | card_options
    slot = dict(link=(4, 16), current=(4, 16), acs=None)
    return [RootComplex(0x00, host_bridge("00.0", 0x8086, 0x29c0, "Intel Corporation 82G33/G31/P35/P31 Express DRAM Controller"),
                        *(port(f"01.{n}", card(**shown), VIRTUAL_PORT, n, **slot) for n in (0, 1)),
                        Function("1f.0", 0x8086, 0x2918, 0x060100, "Intel Corporation 82801IB (ICH9) LPC Interface Controller",
                                 multifunction=True), below4g=0xc0000000, above4g=0x380000000000)]


QEMU_BOARD = board("QEMU", "Standard PC (Q35 + ICH9, 2009)", ("QEMU", "Standard PC (Q35 + ICH9, 2009)"), "0-15", guest=True) | {
    "commands/systemd-detect-virt.json": command(["systemd-detect-virt"], "kvm\n")}


def guest():
    name = "rtx3090-x2-guest"
    return Machine(name, "Two RTX 3090 passed through to a virtual machine", "cases.md topo-p2p-CNS-3090-256M (club-3090 issue 734: "
                   "CNS stays, the chipset is emulated), field-notes.md section 2 (CNS inside VM)", guest_tree(), None,
                   installed("quiet") | informations(("0000:01:00.0", RTX3090), ("0000:02:00.0", RTX3090)) | QEMU_BOARD, "modprobe-options",
                   "this is a guest: the emulated chipset is refused unless P2P is forced, which an option of the driver does; the proof decides",
                   ["a missing Resizable BAR capability says nothing about the vBIOS here; BAR1 is 32 GiB"], False)


def vfio():
    name = "rtx4090-x2-vfio"
    taken = card(driver="vfio-pci", audio_driver="vfio-pci")
    files = installed("quiet amd_iommu=on iommu=pt") | answers(("0000:01:00.0", RTX4090)) | IVHD | {
        "etc/modules-load.d/vfio.conf": "vfio-pci\n",
        **{f"sys/bus/pci/devices/0000:02:00.{n}/driver_override": "vfio-pci\n" for n in (0, 1)}}
    return Machine(name, "Two RTX 4090, one kept for a virtual machine", "field-notes.md section 2, IOMMU notes (refuse on VFIO hosts), "
                   "cases.md driver-override-blocks-autobind", epyc(port("01.1", card()), port("03.1", taken, number=2)), "identity",
                   files, "nvidia-driver", "the card at 02:00.0 is bound to vfio-pci: it belongs to a guest, not to this system",
                   ["giving it back is the operator's decision; clearing ACS would end the guest's isolation"], False, outlook="person")


def proxmox():
    name, kernel = "rtx4090-x2-proxmox", "6.8.12-4-pve"
    files = {path: content for path, content in installed("quiet iommu=pt").items() if KERNEL not in path}
    banner = (f"Linux version {kernel} (build@proxmox) (gcc (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) "
              "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4 (2024-11-06T15:04Z)\n")
    files |= kernel_image(kernel) | modules(kernel) | headers(kernel) | efi(loader="systemd-boot 252.31-1~deb12u1")
    files |= packages({"proxmox-ve": "8.3.0", "pve-manager": "8.3.0"}, (), ()) | TWO_4090 | IVHD | {
        "proc/cmdline": rf"initrd=\EFI\proxmox\{kernel}\initrd.img-{kernel} root=ZFS=rpool/ROOT/pve-1 boot=zfs" + "\n",
        "proc/sys/kernel/osrelease": kernel + "\n", "proc/version": banner, "dev/kmsg": f"5,0,0,-;{banner}",
        "proc/self/mountinfo": mounted("rpool/ROOT/pve-1", "zfs", "0:27"),
        "etc/kernel/cmdline": "root=ZFS=rpool/ROOT/pve-1 boot=zfs\n", "etc/kernel/proxmox-boot-uuids": "0000-0000\n",
        "usr/sbin/proxmox-boot-tool": ("program", b"")}
    return Machine(name, "Two RTX 4090 on Proxmox VE, booted from ZFS by systemd-boot", "issue 3/7 (systemd-boot, proxmox-boot-tool, ZFS), "
                   "cases.md proxmox-6.17-pve-550-dkms-error2 (such a host)", epyc(), "DMA-FQ", files, "iommu",
                   "systemd-boot boots this host: iommu=pt in /etc/default/grub is read by nobody, so the IOMMU still translates",
                   ["the kernel's arguments are in the boot entries on the partitions of proxmox-boot-tool, and in /etc/kernel/cmdline"], False)


def proxmox_grub():
    machine = proxmox()
    name, kernel = machine.name + "-grub", "6.8.12-4-pve"
    files = {path: content for path, content in machine.files.items() if not path.startswith("sys/firmware/efi/efivars/Loader")}
    files["proc/cmdline"] = f"BOOT_IMAGE=/vmlinuz-{kernel} root=ZFS=rpool/ROOT/pve-1 ro quiet boot=zfs\n"
    return Machine(name, "Two RTX 4090 on Proxmox VE, booted from ZFS by GRUB", "proxmox-boot-tool, functions: update_esp_func (GRUB on each ESP)",
                   epyc(), "DMA-FQ", files, "iommu", "GRUB reads the partitions of proxmox-boot-tool, where grub-reboot writes nothing",
                   ["by hand: iommu=pt in /etc/default/grub, proxmox-boot-tool refresh, reboot"], False, outlook="person", blocked_by="boot-loader")


# ---- hardware that decides less, or more, than the registers say ----


def converted_48g_allowed():
    name = "rtx4090-48g-x2-allowed"
    smi = converted_48g().files["commands/nvidia-smi-q.json"]
    allowed = ("schema: p2pd.catalogue/2\nallowed:\n  Duanyll/595.71.05-p2p-48g:\n"
               "    base_commit: 51edebee79919b54f498c19a0be31982cd97646e\n    commit: 23b7fb8244e1c4d62ae374cbdbd41756364241bd\n"
               "    runfile_sha256: 36203b8960b7e49c8a42f6ba1f5863cde34a05e93d2b24b798af06dd846f6b82\n")
    files = stock(NOBLE, "quiet iommu=pt", ubuntu_driver(
        NOBLE, "570.133.20", "Sun Mar 23 12:51:43 UTC 2025", "gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) ",
        "570.133.20-0ubuntu0.24.04.1"))
    return Machine(name, "Two RTX 4090 converted to 48 GB, a build with dynamic BAR1 allowed", "field-notes.md, After ready (48 GB 4090 "
                   "work with dynamic BAR1)", epyc(), "identity", files | TWO_4090 | IVHD | board() | {
                       "etc/p2pd/catalogue.d/allowed.yaml": allowed, "commands/nvidia-smi-q.json": smi}, "nvidia-driver",
                   "BAR1 has its largest size, and the allowed build maps it piece by piece: the distribution's driver gives no P2P", (),
                   False)


def bar1_refused():
    name, small = "rtx4090-x2-bar1-refused", dict(bar1=256 * MIB)
    log = [f"3|pci 0000:02:00.0: BAR 1 [mem size 0x{size:x} 64bit pref]: can't assign; no space" for size in (64 << 30, 32 << 30, 16 << 30)]
    return Machine(name, "Two RTX 4090, Linux found no space for one BAR1", "field-notes.md section 2 (mapping of buffer object failed), "
                   "signature bar-no-space", epyc(port("01.1", card()), port("03.1", card(**small), number=2)), "identity",
                   installed() | TWO_4090 | IVHD | kernel_log(*load_lines(), *log), "bar1-size",
                   "the tree of resources shows room, but Linux has tried 32 GiB and found none",
                   ["what is reserved there is not in /proc/iomem"], False, outlook="person")


def vbios_sizes():
    name = "rtx4090-x2-vbios-sizes"
    model = copy.copy(RTX4090)
    model.largest_bar1 = 8 << 30
    limited = card(model, bar1=8 << 30)
    return Machine(name, "Two RTX 4090, the vBIOS of one offers 8 GiB of BAR1 at most", "field-notes.md section 1, hard limits (a "
                   "vBIOS caps BAR1: aikitoria issue 22, club-3090 issue 734)", epyc(port("01.1", card()), port("03.1", limited, number=2)), "identity", installed() | TWO_4090 | IVHD, "bar1-size",
                   "the chip can do 32 GiB, the vBIOS of 02:00.0 offers 8: an update of the vBIOS is the operator's",
                   ["the other card offers 32 GiB"], False, outlook="person")


def acs_argument_ignored():
    name = "rtx4090-x2-acs-left"
    down = [port(f"{slot:02x}.0", card(), PEX88096_DOWN, slot, acs=REDIRECT) for slot in (0, 4)]
    up = Bridge("00.0", PEX88096_UP, *down, link=(4, 16))
    tree = [RootComplex(0x00, *amd_common(0x1480, 0x1481, 0x1482, "Starship/Matisse")[:2], port("01.1", [up]), numa=0,
                        above4g=0x20000000000)]
    kernel = "6.11.0-26-generic"
    hwe = ubuntu("ubuntu24", kernel, "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13, "6.11.0-26.26~24.04.1",
                 "#26~24.04.1-Ubuntu SMP PREEMPT_DYNAMIC Thu Apr 17 19:20:47 UTC 2")
    files = stock(hwe, "quiet iommu=pt pci=disable_acs_redir=0000:02:00.0;0000:02:04.0", ubuntu_driver(
        hwe, "570.133.20", "Sun Mar 23 12:51:43 UTC 2025", "gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) ",
        "570.133.20-0ubuntu0.24.04.1"))
    return Machine(name, "Two RTX 4090 below a switch, Linux 6.11 leaves the firmware's ACS redirect despite its argument",
                   "Linux 9cf8a952d57b (6.15, 6.14.2, 6.13.11, 6.12.23)", tree, "identity",
                   files | informations(("0000:03:00.0", RTX4090), ("0000:04:00.0", RTX4090)) | IVHD | board(),
                   "acs-redirection", "the kernel was asked to clear both ports, and the bits of the firmware stayed: p2pd clears them itself",
                   ["ACS control of both downstream ports is what the firmware set"], False)


def apic_ids():
    name = "rtx4090-x2-apic-256"
    files = installed("quiet") | TWO_4090 | IVHD | board("Supermicro", "H12DSG-O-CPU", cpus="0-113")
    files["proc/cpuinfo"] = "".join(
        f"processor\t: {cpu}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\napicid\t\t: {cpu if cpu < 112 else cpu - 112 + 0x100}\n"
        "flags\t\t: fpu msr apic sse2 ht lm x2apic avx2\naddress sizes\t: 48 bits physical, 48 bits virtual\n\n" for cpu in range(114))
    return Machine(name, "Two RTX 4090, two of 114 CPUs with APIC IDs of 256 and more", "field-notes.md, third look (CPU 112 had 0x100)",
                   epyc(), "DMA-FQ", files, "iommu",
                   "the IOMMU translates; it must not be off, since two CPUs start only with its interrupt remapping", (), False)


def cases():
    return [healthy(), above4g_off(), switch_window(), no_address(), switch_acs(), acs_elsewhere(), iommu_default(), iommu_asked(), many_cpus(),
            link_x4(), gen1_slot(), lost_card(), mixed(), turing(), converted_48g(), guest(), vfio(), proxmox(), proxmox_grub(),
            converted_48g_allowed(), bar1_refused(), vbios_sizes(), acs_argument_ignored(), apic_ids()]
