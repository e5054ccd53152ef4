# SPDX-License-Identifier: MIT
"""Software installed and loaded on a made machine for tests of single gates: a host without faults.

Programs, libraries, kernels and headers are stand-ins: only their existence and their names matter. Modules
are ELF files with nothing but their .modinfo.
"""

import hashlib
import struct

from .software import Driver, software

KERNEL = "6.1.0-37-amd64"
PATCHED = "570.86.16"  # aikitoria/570.86.16-p2p of the catalogue
BUILT = "Fri Jan 24 21:06:34 UTC 2025"
DEBIAN_GCC12 = "gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) "
MODULES = {"nvidia": (), "nvidia-modeset": ("nvidia",), "nvidia-drm": ("nvidia-modeset", "nvidia"), "nvidia-uvm": ("nvidia",)}
PROGRAMS = ("usr/bin/dkms", "usr/bin/g++", "usr/bin/gcc", "usr/bin/gcc-12", "usr/bin/git", "usr/bin/ld", "usr/bin/make", "usr/bin/xz", "usr/bin/nvidia-smi",
            "usr/bin/nvidia-uninstall", "usr/sbin/depmod", "usr/sbin/modprobe", "usr/sbin/update-grub",
            "usr/sbin/update-initramfs")
PACKAGES = {"dkms": "3.0.10-8+deb12u1", "gcc-12": "12.2.0-14+deb12u1", "git": "1:2.39.5-0+deb12u2", "make": "4.3-4.1",
            "grub-efi-amd64": "2.06-13+deb12u1", "linux-base": "4.9", "libc6": "2.36-9+deb12u10"}
GLOBAL_VARIABLE = "8be4df61-93ca-11d2-aa0d-00e098032b8c"  # EFI_GLOBAL_VARIABLE, UEFI specification section 3.3
PROGRAM = ("program", b"")
DEBIAN_CC = "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
BANNER = (f"Linux version {KERNEL} (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld "
          "(GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)")


def srcversion(version, module, flavour):
    """23 hexadecimal digits that differ where the source does; the kernel's own are a checksum of the source."""
    return hashlib.sha256(f"{version} {module} {flavour}".encode()).hexdigest()[:23].upper()


def module_file(version, module, flavour, kernel, open_module=True):
    """An ELF64 relocatable file with the sections .modinfo and .shstrtab."""
    info = {"license": "Dual MIT/GPL" if open_module else "NVIDIA", "version": version,
            "srcversion": srcversion(version, module, flavour), "depends": ",".join(MODULES[module]), "retpoline": "Y",
            "name": module.replace("-", "_"), "vermagic": f"{kernel} SMP preempt mod_unload modversions "}
    modinfo = b"".join(f"{key}={value}\0".encode() for key, value in info.items())
    names = b"\0.modinfo\0.shstrtab\0"
    table = (64 + len(modinfo) + len(names) + 7) // 8 * 8
    header = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (1, 1, 2, 0, 64, len(modinfo), 0, 0, 1, 0),
                (10, 3, 0, 0, 64 + len(modinfo), len(names), 0, 0, 1, 0)]
    return (header + modinfo + names).ljust(table, b"\0") + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in sections)


def modules(kernel=KERNEL, version=PATCHED, flavour="patched", where="kernel/drivers/video", open_module=True, base="nvidia",
            suffix=".ko"):
    """Module files of one kernel, and the modules.dep that lists them; Debian's are called nvidia-current*."""
    here = f"lib/modules/{kernel}/"
    place = {name: where + "/" + name.replace("nvidia", base, 1) + suffix for name in MODULES}
    files = {here + place[name]: module_file(version, name, flavour, kernel, open_module) for name in MODULES}
    files[here + "modules.dep"] = "".join(
        place[name] + ":" + "".join(" " + place[above] for above in needs) + "\n" for name, needs in MODULES.items())
    return files


def loaded(version=PATCHED, flavour="patched"):
    """Files of sysfs and procfs for the loaded modules."""
    files, lines = {}, []
    for at, (name, size, users, by) in enumerate((("nvidia-uvm", 4956160, 0, "-"), ("nvidia-drm", 131072, 0, "-"),
                                                  ("nvidia-modeset", 1724416, 1, "nvidia_drm,"),
                                                  ("nvidia", 11575296, 2, "nvidia_uvm,nvidia_modeset,"))):
        kernel_name = name.replace("-", "_")
        lines.append(f"{kernel_name} {size} {users} {by} Live 0x{0xffffffffc1000000 + at * 0x1000000:016x} (OE)\n")
        here = f"sys/module/{kernel_name}/"
        files |= {here + "version": version + "\n", here + "srcversion": srcversion(version, name, flavour) + "\n",
                  here + "refcnt": f"{users}\n", here + "initstate": "live\n"}
    return files | {"proc/modules": "".join(lines)}


def nouveau_loaded():
    return {"sys/module/nouveau/refcnt": "2\n", "sys/module/nouveau/initstate": "live\n",
            "proc/modules": "nouveau 2433024 2 - Live 0xffffffffc0a00000\n"}


def userspace(version=PATCHED):
    files = {}
    for library in ("libcuda.so", "libnvidia-ml.so"):
        here = f"usr/lib/x86_64-linux-gnu/{library}."
        files |= {here + version: "", here + "1": ("link", f"{library}.{version}")}
    return files


def kernel_image(kernel=KERNEL, compiler=DEBIAN_CC):
    return {f"boot/vmlinuz-{kernel}": "", f"boot/initrd.img-{kernel}": "", f"lib/modules/{kernel}/modules.dep": "",
            f"boot/config-{kernel}": f'CONFIG_CC_VERSION_TEXT="{compiler}"\nCONFIG_CC_IS_GCC=y\nCONFIG_MODULE_SIG=y\n'
                                     "# CONFIG_MODULE_SIG_FORCE is not set\nCONFIG_DEBUG_INFO_BTF=y\n"}


def headers(kernel=KERNEL):
    here = f"usr/src/linux-headers-{kernel}/"
    return {f"lib/modules/{kernel}/build": ("link", "/" + here.rstrip("/")), here + ".config": "CONFIG_MODULES=y\n",
            here + "Makefile": "# stand-in\n", here + "Module.symvers": "", here + "include/generated/autoconf.h":
            "#define CONFIG_MODULES 1\n", here + "include/generated/utsrelease.h": f'#define UTS_RELEASE "{kernel}"\n',
            here + "include/linux/pci.h": "int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);\n",
            here + "include/linux/of_gpio.h": "static inline int of_get_named_gpio(const struct device_node *np,\n",
            here + "include/linux/string.h": "#ifndef __HAVE_ARCH_STRNCPY\n", here + "include/drm/drm_atomic.h": ""}


def packages(more=None, kernels=(KERNEL,), with_headers=(KERNEL,), base=None, built="6.1.140-1"):
    """/var/lib/dpkg/status; `more`: package to its version, or to (version, state)."""
    found = dict(base or PACKAGES) | {"linux-image-" + kernel: built for kernel in kernels}
    found |= {"linux-headers-" + kernel: built for kernel in with_headers} | (more or {})
    text = ""
    for name, version in sorted(found.items()):
        version, state = version if isinstance(version, tuple) else (version, "installed")
        text += (f"Package: {name}\nStatus: install ok {state}\nMaintainer: Debian\nArchitecture: amd64\n"
                 f"Version: {version}\nDescription: {name}\n\n")
    return {"var/lib/dpkg/status": text, "var/lib/dpkg/updates/tmp.i": ""}


def efi(secure_boot=False, loader=None):
    """EFI variables: four bytes of attributes, then the value."""
    here = "sys/firmware/efi/"
    files = {here + "fw_platform_size": "64\n",
             here + f"efivars/SecureBoot-{GLOBAL_VARIABLE}": bytes([6, 0, 0, 0, 1 if secure_boot else 0]),
             here + f"efivars/SetupMode-{GLOBAL_VARIABLE}": bytes([6, 0, 0, 0, 0]),
             "sys/kernel/security/lockdown": "none [integrity] confidentiality\n" if secure_boot
             else "[none] integrity confidentiality\n"}
    if loader:
        files[here + "efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"] = \
            bytes([6, 0, 0, 0]) + (loader + "\0").encode("utf-16-le")
    return files


def kernel_log(*lines, banner=BANNER):
    """/dev/kmsg: priority and facility, sequence, microseconds, flags; then the text. A level is put as "3|text"."""
    text = f"5,0,0,-;{banner}\n"
    for at, line in enumerate(lines):
        level, _, said = line.partition("|") if line[1:2] == "|" else ("6", "", line)
        text += f"{level},{1200 + at},{8400000 + at * 250000},-;{said}\n"
    return {"dev/kmsg": text}


def load_lines(version=PATCHED):
    return ("nvidia: loading out-of-tree module taints kernel.",
            "4|nvidia: module verification failed: signature and/or required key missing - tainting kernel",
            f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (root@host)  {BUILT}")


def information(model, address, minor, version=PATCHED):
    return {f"proc/driver/nvidia/gpus/{address}/information":
            f"Model: \t\t {model}\nIRQ:   \t\t {120 + minor}\nGPU UUID: \t GPU-00000000-0000-0000-0000-000000000000\n"
            "Video BIOS: \t 95.02.3c.40.b6\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n"}


def mounted(root, kind, device):
    return (f"25 1 {device} / / rw,relatime shared:1 - {kind} {root} rw\n"
            "26 25 259:1 / /boot/efi rw,relatime shared:2 - vfat /dev/nvme0n1p1 rw\n")


def board(vendor="ASRockRack", name="ROMED8-2T", system=("To Be Filled By O.E.M.", "To Be Filled By O.E.M."), cpus="0-31",
          cpu="AuthenticAMD", guest=False, five_levels=False):
    """`five_levels` of page tables."""
    here = "sys/class/dmi/id/"
    return {here + "sys_vendor": system[0] + "\n", here + "product_name": system[1] + "\n", here + "board_vendor": vendor + "\n",
            here + "board_name": name + "\n", here + "bios_vendor": "American Megatrends International, LLC.\n",
            here + "bios_version": "3.90\n", here + "bios_date": "03/20/2024\n", "sys/devices/system/cpu/online": cpus + "\n",
            "sys/devices/system/cpu/possible": cpus + "\n", "sys/devices/system/cpu/present": cpus + "\n",
            "sys/module/module/parameters/sig_enforce": "N\n",
            "proc/cpuinfo": f"processor\t: 0\nvendor_id\t: {cpu}\nflags\t\t: fpu msr apic sse2 ht lm constant_tsc x2apic"
                            f"{' hypervisor' if guest else ''} avx2{' la57' if five_levels else ''}\n"
                            f"address sizes\t: {'52 bits physical, 57' if five_levels else '48 bits physical, 48'} bits virtual\n\n"}


def installed(arguments="quiet iommu=pt", version=PATCHED, registry="", resize=True):
    """Everything but the PCI tree of a Debian 12 host with patched modules from `make modules_install` and a runfile."""
    driver = Driver(version, BUILT, DEBIAN_GCC12, registry=registry)
    if resize:
        params = "proc/driver/nvidia/params"
        driver.files[params] = driver.files[params].replace("EnableResizableBar: 0", "EnableResizableBar: 1")
    options = {"etc/modprobe.d/nvidia-installer-disable-nouveau.conf": "# generated by nvidia-installer\nblacklist nouveau\n"
                                                                       "options nouveau modeset=0\n"}
    if resize or registry:
        options["etc/modprobe.d/nvidia-p2p.conf"] = ("options nvidia NVreg_EnableResizableBar=1\n" if resize else "") + (
            f'options nvidia NVreg_RegistryDwords="{registry}"\n' if registry else "")
    return (software("debian12", KERNEL, arguments, driver, options) | board() | efi() | kernel_image() | headers()
            | modules(version=version) | loaded(version) | userspace(version) | packages() | kernel_log(*load_lines(version))
            | {program: PROGRAM for program in PROGRAMS}
            | {"proc/version": BANNER + "\n", "proc/self/mountinfo": mounted("/dev/nvme0n1p2", "ext4", "259:2")})
