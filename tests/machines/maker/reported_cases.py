# SPDX-License-Identifier: MIT
"""Machines of public reports where Linux's own driver, a mixed machine, a display, firmware or the boot loader is in the way."""

from .cards import RTX3090, RTX4090, RTX5090, RTXPRO6000, GpuModel
from .cases import IVHD, TWO_4090, card, epyc, port
from .config_space import GIB, MIB
from .driver_answer import answers
from .installed import installed, kernel_log, load_lines, modules, userspace
from .machines import IDLE, REDIRECT, UBUNTU_GCC13, Machine
from .proof_cases import FIRST, NOBLE_HWE, SECOND, blackwell_files, systemd_booted
from .stock import stock, ubuntu_driver
from .todays_cases import RESOLUTE, newer_headers
from .topology import AMD_GENOA_PORT, Tree

THIRD, FOURTH = "0000:03:00.0", "0000:04:00.0"
NOVA = {"sys/module/nova_core/refcnt": "1\n", "sys/module/nova_core/initstate": "live\n", "sys/module/nova/refcnt": "0\n",
        "sys/module/nova/initstate": "live\n",
        "proc/modules": "nova 16384 0 - Live 0xffffffffc0b00000\nnova_core 131072 1 nova, Live 0xffffffffc0a00000\n"}
RTX5060TI = GpuModel(0x2d04, "GB206 [GeForce RTX 5060 Ti]", 0x22eb, "GB206 High Definition Audio Controller", 5, 64 * MIB,
                     (0x1043, 0x8a11), 16 * GIB, width=8)


def cards(*models, model=AMD_GENOA_PORT, link=(5, 16), acs=0, **options):
    """One card a root port, all idle."""
    return epyc(*(port(f"0{2 * n + 1}.1", card(one, **options), model, n + 1, link=link, current=(IDLE, link[1]), acs=acs)
                  for n, one in enumerate(models)))


def nova(name, title, files, cause, why):
    return Machine(name, title, "Olares PR 3963, aikitoria issue 24 (nova_core, PCI driver NovaCore, kernels 7.0 and later)",
                   cards(RTX4090, RTX4090, link=(4, 16), driver="NovaCore"), "identity",
                   stock(RESOLUTE, "quiet splash iommu=pt") | newer_headers(RESOLUTE) | NOVA | IVHD | files, cause, why, (), False)


def nova_first_day():
    return nova("ubuntu26-rtx4090-x2-nova", "Two RTX 4090 that Linux's Nova drives, no NVIDIA driver", {}, "nvidia-driver",
                "nova_core takes the cards at every boot, and only a reboot without it takes them back")


def nova_refuses_nvidia():
    version = "610.57.04"
    log = kernel_log("nvidia-nvlink: Nvlink Core is being initialized, major device number 508",
                     *(f"NVRM: GPU {gpu} is already bound to NovaCore." for gpu in (FIRST, SECOND)), "NVRM: No NVIDIA devices probed.",
                     "nvidia-nvlink: Unregistered Nvlink Core, major device number 508", banner=RESOLUTE.banner)
    files = modules(RESOLUTE.kernel, version, suffix=RESOLUTE.module_suffix) | userspace(version) | log | {
        "usr/bin/nvidia-smi": ("program", b""), "usr/bin/nvidia-uninstall": ("program", b""),
        "etc/modprobe.d/nvidia-installer-disable-nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n"}
    return nova("ubuntu26-rtx4090-x2-nova-refuses", "Two RTX 4090 that Linux's Nova drives, NVIDIA's driver found none", files,
                "other-modules", "NVRM says that the cards are bound to NovaCore: whatever options nvidia gets, it has no card")


def professional_iommu():
    version, four = "595.84", (FIRST, SECOND, THIRD, FOURTH)
    files = stock(NOBLE_HWE, "quiet splash", ubuntu_driver(
        NOBLE_HWE, version, "Tue Jun  9 20:11:32 UTC 2026", UBUNTU_GCC13, "595.84-0ubuntu0.24.04.1"))
    return Machine("rtxpro6000-x4-iommu-acs", "Four RTX PRO 6000, stock driver, the IOMMU translates and the ports redirect",
                   "local-inference-lab/rtx6kpro issue 15 (NCCL hangs at its first all-reduce)",
                   cards(*[RTXPRO6000] * 4, bar1=128 * GIB, acs=REDIRECT), "DMA-FQ",
                   files | IVHD | answers(*((gpu, RTXPRO6000) for gpu in four), version=version), None,
                   "NVIDIA's driver can tell the IOMMU what such cards address, so that the proof decides; doctor names both", (), False)


def mixed_ok():
    return Machine("rtx3090-rtx4090-driver-ok", "An RTX 3090 beside an RTX 4090, the patched driver says OK", "aikitoria issue 40",
                   cards(RTX3090, RTX4090, link=(4, 16)), "identity",
                   installed() | IVHD | answers((FIRST, RTX3090), (SECOND, RTX4090)), "gpu-generation",
                   "libcuda refuses peer access between generations, whatever the driver says", (), False, outlook="impossible")


def one_displays():
    outputs = {}
    for number, (gpu, status) in enumerate(((FIRST, "connected"), (SECOND, "disconnected"), (THIRD, "disconnected"))):
        here = f"sys/class/drm/card{number}"
        outputs |= {here + "/device": ("link", f"../../../bus/pci/devices/{gpu}"), here + "-DP-1/status": status + "\n",
                    here + "-DP-1/enabled": "enabled\n" if status == "connected" else "disabled\n"}
    return Machine("rtx5090-x3-display", "Three RTX 5090, one drives a display, the driver says OK", "aikitoria PR 34",
                   cards(*[RTX5090] * 3), "identity", blackwell_files() | outputs | answers(
                       *((gpu, RTX5090) for gpu in (FIRST, SECOND, THIRD)), version="595.45.04"), None,
                   "pairs with the first card may copy garbage: it is alone, and the proof is of the other two", (), False)


def first_day_5060():
    return Machine("rtx5060ti-x2-first-day", "Two RTX 5060 Ti, no driver yet", "club-3090 (first day; the model sells as 8 and 16 GB)",
                   cards(*[RTX5060TI] * 2, link=(5, 8), bar1=16 * GIB, width=8, driver=None), "identity",
                   stock(NOBLE_HWE, "quiet splash iommu=pt") | IVHD, "nvidia-driver",
                   "BAR1 has the largest size that the cards offer, which covers what they are sold with: only the driver is missing", (), False)


def unified_image():
    return Machine("rtx4090-x2-uki", "Two RTX 4090, patched driver, systemd-boot starts a unified image; the IOMMU translates, ports redirect",
                   "gardenlinux issue 4556", cards(RTX4090, RTX4090, link=(4, 16), acs=REDIRECT), "DMA-FQ",
                   systemd_booted("quiet") | IVHD | answers((FIRST, RTX4090), (SECOND, RTX4090)), "iommu",
                   "iommu=pt and the ports' pci=disable_acs_redir= are wanted, and a copy of the image with an addon tries them", (), False)


def other_firmware():
    version, newer = "595.58.03", "595.71.05"
    files = {path: text for path, text in installed(version=version).items() if not path.startswith("usr/lib/x86_64-linux-gnu/")}
    log = kernel_log(*load_lines(version),
                     f"3|NVRM: GPU0 _kgspFwContainerVerifyVersion: GSP firmware image version mismatch: got version {newer}, expected version {version}",
                     "3|NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2028)",
                     "3|NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0")
    return Machine("rtx4090-x2-other-firmware", "Two RTX 4090, modules 595.58.03 with firmware and libraries 595.71.05",
                   "Nobara-Project/rpm-sources issue 526", epyc(), "identity", files | userspace(newer) | TWO_4090 | IVHD | log
                   | {f"usr/lib/firmware/nvidia/{newer}/gsp_ga10x.bin": ""},
                   "nvidia-userspace", "the module refuses the firmware: no GPU starts, whatever its options are", (), False)


def console():
    """boot_params of a kernel that UEFI's framebuffer was handed to: struct screen_info, and nothing of the rest."""
    bar1 = next(function for function in Tree(epyc(), "identity").listed if function.address == FIRST).at[1][0]
    screen = bytearray(0x40)
    screen[0x0f], screen[0x36] = 0x70, 2  # VIDEO_TYPE_EFI, VIDEO_CAPABILITY_64BIT_BASE
    screen[0x18:0x1c], screen[0x3a:0x3e] = (bar1 & 0xffffffff).to_bytes(4, "little"), (bar1 >> 32).to_bytes(4, "little")
    return Machine("rtx4090-x2-uefi-console", "Two RTX 4090, the first has the console of UEFI, which nvidia-drm took over",
                   "aikitoria PR 41 (a 5070 Ti with a console misses static BAR1); nv_get_screen_info() of NVIDIA's nv.c", epyc(), "identity",
                   installed() | TWO_4090 | IVHD | {"sys/kernel/boot_params/data": bytes(screen)}, "display-gpus",
                   "RM finds the framebuffer of the boot loader at the start of BAR1, though no device of sysfs shows it any more", (), False,
                   outlook="person")


def reported_cases():
    return [nova_first_day(), nova_refuses_nvidia(), professional_iommu(), mixed_ok(), one_displays(), first_day_5060(), unified_image(),
            other_firmware(), console()]
