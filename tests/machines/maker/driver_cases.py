# SPDX-License-Identifier: MIT
"""Machines that differ from a healthy one by one gate of driver, packages, kernel or log, which doctor must name first."""

from .cards import RTX3090, RTX4090, RTXA6000
from .cases import IVHD, RESIZED, TWO_4090, card, epyc, mapped, port
from .config_space import MIB
from .driver_answer import command, informations
from .installed import (KERNEL, PATCHED, efi, headers, information, installed, kernel_image, kernel_log, load_lines, loaded,
                        modules, nouveau_loaded, packages, userspace)
from .machines import IDLE, Machine

NEWER = "6.1.0-38-amd64"
ALL_GONE = ("proc/driver/nvidia/", "sys/module/nvidia", "proc/modules", "lib/modules/", "usr/lib/", "usr/bin/nvidia-",
            "etc/modprobe.d/nvidia")


def without(files, *prefixes):
    return {path: content for path, content in files.items() if not path.startswith(prefixes)}


def healthy_but(name, title, source, files, root_cause, why, notes=RESIZED, complexes=None, **expected):
    """A machine with the PCI tree and the IOMMU of rtx4090-x2-healthy."""
    return Machine(name, title, source, complexes or epyc(), "identity", files | IVHD, root_cause, why, notes, False, **expected)


def nouveau():
    name = "rtx3090-x2-nouveau"
    cards = dict(model=RTX3090, driver="nouveau")
    files = without(installed(), *ALL_GONE) | kernel_image() | headers() | nouveau_loaded()
    return healthy_but(name, "Two RTX 3090 driven by nouveau", "field-notes.md section 3 (nouveau: driver link), cases.md "
                       "nouveau-owns-card-then-nvidia-loaded", files, "nvidia-driver",
                       "nouveau is bound to both cards and no NVIDIA driver is installed",
                       complexes=epyc(port("01.1", card(**cards)), port("03.1", card(**cards), number=2)))


def proprietary_files(more=None):
    """With the distribution's proprietary driver; `more`: packages besides."""
    version = "535.247.01"
    files = installed(version=version) | modules(version=version, flavour="proprietary", where="updates/dkms",
                                                       open_module=False)
    files = without(files, "lib/modules/" + KERNEL + "/kernel/", "usr/bin/nvidia-uninstall") | loaded(version, "proprietary")
    files["proc/driver/nvidia/version"] = files["proc/driver/nvidia/version"].replace(
        "UNIX Open Kernel Module for x86_64", "UNIX x86_64 Kernel Module").replace("Release Build  (dvs-builder@host)  ", "")
    files |= packages({"nvidia-kernel-dkms": f"{version}-1~deb12u1", "libcuda1": f"{version}-1~deb12u1",
                       "nvidia-driver": f"{version}-1~deb12u1"} | (more or {})) | informations(
                           ("0000:01:00.0", RTX4090), ("0000:02:00.0", RTX4090), version=version)
    files["etc/modprobe.d/nvidia-p2p.conf"] = "options nvidia NVreg_EnableResizableBar=1\n"
    return files | kernel_log("nvidia: loading out-of-tree module taints kernel.",
                              f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {version}  Mon Mar 31 19:59:45 UTC 2025")


def proprietary():
    name = "rtx4090-x2-proprietary"
    return healthy_but(name, "Two RTX 4090 with the distribution's proprietary driver", "field-notes.md section 2 (CNS: stock chipset "
                       "and GPU gate, patched modules), tinygrad issue 23", proprietary_files(),
                       "nvidia-driver", "the loaded driver is the stock proprietary one, which refuses P2P between GeForce cards",
                       ["everything before the driver is as on a healthy host"])


def stock_still_loaded():
    name = "rtx4090-x2-stock-loaded"
    return healthy_but(name, "Two RTX 4090, patched modules installed, stock ones still loaded", "field-notes.md section 1 (install.sh "
                       "ignores a failed rmmod: aikitoria issue 10), section 2 (GNS after install: issue 43)",
                       installed() | TWO_4090 | loaded(flavour="stock"), "other-modules",
                       "srcversion of the loaded nvidia is not that of the file modprobe would load; the version string is the same")


def dkms_shadow():
    name = "rtx4090-x2-dkms-shadow"
    stock = modules(flavour="stock", where="updates/dkms")
    dep = f"lib/modules/{KERNEL}/modules.dep"
    files = installed() | TWO_4090 | loaded(flavour="stock")
    return healthy_but(name, "Two RTX 4090, a DKMS build outranks the patched modules", "field-notes.md section 2 (modinfo -n under "
                       "updates/dkms: DKMS outranks kernel/drivers/video), QuixiAI README",
                       files | stock | {dep: stock[dep], f"var/lib/dkms/nvidia/{PATCHED}/{KERNEL}/x86_64/module/nvidia.ko": ""},
                       "nvidia-modules", "the stock modules in updates/dkms are loaded and shadow the patched ones in "
                       "kernel/drivers/video")


def mismatch():
    name, newer = "rtx4090-x2-userspace-mismatch", "570.133.20"
    files = without(installed(), "usr/lib/", "usr/bin/nvidia-uninstall") | TWO_4090 | userspace(newer) | {
        "var/log/apt/history.log": "\nStart-Date: 2025-04-02  06:12:41\nCommandline: /usr/bin/unattended-upgrade\n"
                                   f"Upgrade: libcuda1:amd64 ({PATCHED}-1, {newer}-1), libnvidia-ml1:amd64 ({PATCHED}-1, {newer}-1)\n"
                                   "End-Date: 2025-04-02  06:13:20\n",
        "commands/nvidia-smi-q.json": command(["nvidia-smi", "-q"], "Failed to initialize NVML: Driver/library version mismatch\n"
                                              "NVML library version: 570.133\n", 18)}
    files |= packages({"libcuda1": f"{newer}-1", "libnvidia-ml1": f"{newer}-1"})
    return healthy_but(name, "Two RTX 4090, libraries newer than the kernel module", "field-notes.md section 2 (Driver/library version "
                       "mismatch: unattended upgrade; tinygrad issue 47), cases.md api-mismatch-relative-timestamp",
                       files | kernel_log(*load_lines(), f"3|NVRM: API mismatch: the client has the version {newer}, but",
                                          f"3|NVRM: this kernel module has the version {PATCHED}.  Please",
                                          "3|NVRM: make sure that this kernel module and all NVIDIA driver",
                                          "3|NVRM: components have the same version."), "nvidia-userspace",
                       "libcuda and NVML are 570.133.20, the loaded module is 570.86.16")


def no_headers():
    name = "rtx4090-x2-no-headers"
    return healthy_but(name, "Two RTX 4090, the newest kernel has no headers", "cases.md missing-headers-dkms-multi-kernel, issue 3/7 "
                       "(running and newest installed kernel, headers)",
                       installed() | TWO_4090 | kernel_image(NEWER) | packages(kernels=(KERNEL, NEWER)), None,
                       f"the next boot starts {NEWER}, for which no modules can be built; they are not p2pd's, and P2P can be proven on this one",
                       [f"{KERNEL} is running, with patched modules and headers"])


def kernel_without_modules():
    name = "rtx4090-x2-new-kernel"
    both = (KERNEL, NEWER)
    return healthy_but(name, "Two RTX 4090, a kernel upgrade left the modules behind", "field-notes.md, ten things, no. 8 (new-kernel "
                       "prebuild), expectations.md A3 (kernel upgrade drops the driver)",
                       installed() | TWO_4090 | kernel_image(NEWER) | headers(NEWER) | packages(kernels=both, with_headers=both),
                       None, f"the next boot starts {NEWER}, which has no nvidia modules; they are not p2pd's, and P2P can be proven on this one",
                       ["modules from make modules_install: nothing builds them for a new kernel"])


def secure_boot():
    name = "rtx4090-x2-secure-boot"
    files = without(installed(), "proc/driver/nvidia/", "sys/module/nvidia", "proc/modules") | efi(secure_boot=True)
    files["proc/modules"] = "video 65536 0 - Live 0xffffffffc0900000\n"
    cards = dict(driver=None)
    return healthy_but(name, "Two RTX 4090, Secure Boot on, modules not signed", "field-notes.md section 2 (Key was rejected by service: "
                       "needs console), cases.md module-key-rejected",
                       files | kernel_log("Kernel is locked down from EFI Secure Boot; see man kernel_lockdown.7",
                                          "5|Loading of unsigned module is rejected",
                                          "5|Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7"),
                       "nvidia-modules", "Secure Boot is on and the patched modules carry no signature, so the kernel refuses them: none is loaded",
                       ["nothing is bound to the cards"],
                       epyc(port("01.1", card(**cards)), port("03.1", card(**cards), number=2)), outlook="person", blocked_by="module-loading")


def dpkg_broken():
    name = "rtx4090-x2-dpkg-broken"
    return healthy_but(name, "Two RTX 4090 with the distribution's driver, dpkg stopped half-way", "cases.md dkms-debian12-470-dpkg-chain, "
                       "popos-6.17-580-open-dkms; style.md, facts (a failing DKMS build ends apt in error)",
                       proprietary_files({"zfs-dkms": ("2.1.11-1+deb12u1", "half-configured"),
                                                "zfs-zed": ("2.1.11-1+deb12u1", "unpacked")}),
                       "nvidia-driver", "the stock driver must go, and zfs-dkms is half-configured: apt does nothing else until that is fixed",
                       outlook="person", blocked_by="packages")


def dwords():
    name = "rtx4090-x2-dwords"
    registry = "ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2;GrdmaPciTopoCheckOverride=1;EnableResizableBar=1"
    return healthy_but(name, "Two RTX 4090 with registry keys of a guide for another driver", "field-notes.md section 0, no. 1 and 2 "
                       "(values changed at 575; two popular keys do nothing), section 1 (the 5-key form)",
                       installed(registry=registry) | TWO_4090, "module-parameters",
                       "RMForceP2PType=1 is the mailbox before 575 and undoes the BAR1 that is compiled in; two other keys do nothing",
                       ["NVreg_EnableResizableBar=1 is set as the module option that it is"], outlook="person")


def xid31():
    name = "rtx4090-x2-xid31"
    fault = ("3|NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=process, Ch 00000008, intr 00000000. MMU Fault: ENGINE CE0 "
             "HUBCLIENT_CE0 faulted @ 0x7f14_4c000000. Fault is of type FAULT_INFO_TYPE_UNSUPPORTED_KIND ACCESS_TYPE_VIRT_WRITE")
    return healthy_but(name, "Two RTX 4090, peer writes end in Xid 31", "cases.md bar1p2p-mapping-then-xid31 (tinygrad README), "
                       "field-notes.md section 2 (Xid 31 UNSUPPORTED_KIND: peer aperture on an unpatched path)",
                       installed() | TWO_4090 | kernel_log(*load_lines(), *mapped(), fault), "kernel-log",
                       "nothing in files is wrong, but the log has an MMU fault of unsupported kind: the patch is incomplete",
                       outlook="person")


def on_monitor():
    card_0 = "sys/class/drm/card0"
    return {f"{card_0}/device": ("link", "../../../bus/pci/devices/0000:01:00.0"), f"{card_0}-DP-1/status": "connected\n",
            f"{card_0}-DP-1/enabled": "enabled\n", f"{card_0}-HDMI-A-1/status": "disconnected\n", f"{card_0}-HDMI-A-1/enabled": "disabled\n"}


def display():
    name = "rtx4090-x2-display"
    return healthy_but(name, "Two RTX 4090, a monitor on the first", "aikitoria/open-gpu-kernel-modules PR 36, tinygrad/open-gpu-kernel-modules "
                       "PR 49 (a framebuffer at the start of BAR1)", installed() | TWO_4090 | on_monitor(), "display-gpus",
                       "a framebuffer takes the start of BAR1: pairs with that GPU are refused, or copy garbage while the driver calls them OK",
                       outlook="person")


def first_day():
    name, small = "rtx4090-x2-first-day", dict(bar1=256 * MIB)
    files = proprietary_files() | efi(secure_boot=True) | on_monitor()
    return healthy_but(name, "Two RTX 4090 as on the first day: nothing set in the firmware, a monitor, the distribution's driver",
                       "the cases above, at once", files, "bar1-size",
                       "three things in the firmware setup; all else p2pd does: BAR1 of 256 MiB, Secure Boot, a monitor on a GPU", [],
                       epyc(port("01.1", card(**small)), port("03.1", card(**small), number=2), above4g=0xc0000000), outlook="person")


def professional():
    name, version = "rtxa6000-x2", "580.95.05"
    slot = dict(link=(4, 16), current=(IDLE, 16))
    cards = dict(model=RTXA6000, bar1=64 << 30)
    files = installed(version=version, resize=False) | modules(version=version, flavour="stock") | loaded(version, "stock")
    files |= information("NVIDIA RTX A6000", "0000:01:00.0", 0, version) | information("NVIDIA RTX A6000", "0000:02:00.0", 1, version)
    return healthy_but(name, "Two RTX A6000 with the stock driver", "cases.md nvbandwidth-6xa6000-works (nvbandwidth issue 50)", files,
                       None, "the stock driver gives P2P between professional cards: only the proof is missing",
                       ["BAR1 is 64 GiB and covers the VRAM of 48 GiB without an option"],
                       epyc(port("01.1", card(**cards), **slot), port("03.1", card(**cards), number=2, **slot)))


def driver_cases():
    return [nouveau(), proprietary(), stock_still_loaded(), dkms_shadow(), mismatch(), no_headers(), kernel_without_modules(),
            secure_boot(), dpkg_broken(), dwords(), xid31(), display(), first_day(), professional()]
