# SPDX-License-Identifier: MIT
"""Machines of other systems than Debian and Ubuntu, as their installers leave them: CachyOS, Fedora, Proxmox VE."""

from .boot import NO_UUID
from .cards import RTX4090
from .cases import IVHD, card, epyc, port
from .driver_answer import answers, command
from .installed import PROGRAM, board, efi, headers, kernel_log, load_lines, loaded, modules, packages, userspace
from .machines import REDIRECT, Machine
from .proof_cases import FIRST, SECOND
from .software import Driver, software
from .stock import DEBIAN, StockDriver, System, stock
from .todays_cases import newer_headers

NO_ID = "0" * 32  # of a machine
LOADER = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # vendor of systemd-boot's EFI variables


def redirecting():
    return epyc(port("01.1", card(), acs=REDIRECT), port("03.1", card(), number=2, acs=REDIRECT))


def refused(version):
    """The driver answers for the two cards that it knows no such chipset."""
    return answers((FIRST, RTX4090), (SECOND, RTX4090), version=version, refused=[FIRST, SECOND], word="CNS")


def selected(entry):
    return {f"sys/firmware/efi/efivars/LoaderEntrySelected-{LOADER}": bytes([6, 0, 0, 0]) + (entry + "\0").encode("utf-16-le")}


def programs(*names):
    return {f"usr/bin/{name}": PROGRAM for name in names}


def foreign(os_release, kernel, banner, arguments, driver, where, suffix, libraries):
    """Software of a system without dpkg: `driver` is its package's, with modules in `where`, libraries in `libraries`."""
    files = software("debian13", kernel, "", driver[0])
    del files["etc/default/grub"]
    version = driver[1]
    lines = (*load_lines(version)[:2], f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@host)")
    here = {path.replace("usr/lib/x86_64-linux-gnu", libraries): content for path, content in userspace(version).items()}
    return (files | board() | headers(kernel) | modules(kernel, version, "stock", where, suffix=suffix) | loaded(version, "stock") | here
            | kernel_log(*lines, banner=banner)
            | programs("dkms", "g++", "gcc", "git", "ld", "make", "modinfo", "nvidia-smi", "xz") | {
                "etc/os-release": os_release, "proc/cmdline": arguments + "\n", "proc/version": banner + "\n",
                f"usr/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "", "usr/sbin/depmod": PROGRAM, "usr/sbin/modprobe": PROGRAM})


def cachyos():
    kernel, version, package = "7.2.2-2-cachyos", "610.57.04", "linux-cachyos"
    banner = (f"Linux version {kernel} ({package}@cachyos) (clang version 22.1.3, LLD 22.1.3) #1 SMP PREEMPT_DYNAMIC "
              "Wed, 30 Sep 2026 11:20:03 +0000")
    options = f"root=UUID={NO_UUID} rw rootflags=removed quiet nowatchdog splash"
    driver = Driver(version, "Mon Aug 31 19:22:10 UTC 2026", "clang version 22.1.3")
    files = foreign('NAME="CachyOS Linux"\nPRETTY_NAME="CachyOS"\nID=cachyos\nBUILD_ID=rolling\nID_LIKE=arch\n', kernel, banner,
                    rf"initrd=\initramfs-{package}.img {options}", (driver, version), "updates/dkms", ".ko.zst", "usr/lib")
    files |= efi(loader="systemd-boot 260.1-1-arch") | selected(f"{package}.conf") | programs("bootctl", "lsinitcpio", "mkinitcpio", "pacman") | {
        f"boot/vmlinuz-{package}": "", f"boot/initramfs-{package}.img": "", f"lib/modules/{kernel}/pkgbase": package + "\n",
        "boot/EFI/systemd/systemd-bootx64.efi": "", "boot/loader/loader.conf": f"default {package}.conf\ntimeout 5\nconsole-mode max\n",
        f"boot/loader/entries/{package}.conf": f"title Linux Cachyos\noptions {options}\nlinux /vmlinuz-{package}\ninitrd /initramfs-{package}.img\n",
        "etc/modprobe.d/blacklist.conf": "blacklist nouveau\n",
        "proc/self/mountinfo": "25 1 0:27 /@ / rw,noatime shared:1 - btrfs /dev/nvme0n1p2 rw\n"
                               "26 25 259:1 / /boot rw,relatime shared:2 - vfat /dev/nvme0n1p1 rw\n"}
    system = System("cachyos", kernel, "", 0, "", banner, {})
    return Machine("cachyos-rtx4090-x2", "Two RTX 4090, CachyOS with systemd-boot, its open driver by DKMS",
                   "issue 61; aikitoria issue 40 (such a system), installer of CachyOS", redirecting(), "DMA-FQ",
                   files | newer_headers(system) | IVHD | refused(version), "nvidia-driver",
                   "no apt replaces the driver: a person puts other modules in its place; the arguments are tried by systemd-boot then",
                   ["its kernel is built with clang"], False, outlook="person", blocked_by="driver-choice")


def fedora():
    kernel, version = "6.17.7-300.fc43.x86_64", "580.105.08"
    banner = (f"Linux version {kernel} (mockbuild@host) (gcc (GCC) 15.2.1 20251022 (Red Hat 15.2.1-3), GNU ld version 2.45-1.fc43) "
              "#1 SMP PREEMPT_DYNAMIC Sun Nov  2 15:30:09 UTC 2025")
    nouveau = "rd.driver.blacklist=nouveau,nova_core modprobe.blacklist=nouveau,nova_core"
    options = f"root=UUID={NO_UUID} ro rootflags=removed rhgb quiet {nouveau}"
    driver = Driver(version, "Wed Oct 29 22:15:27 UTC 2025", "gcc version 15.2.1 20251022 (Red Hat 15.2.1-3) (GCC) ")
    files = foreign('NAME="Fedora Linux"\nVERSION="43 (Server Edition)"\nID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43 (Server Edition)"\n',
                    kernel, banner, f"BOOT_IMAGE=(hd0,gpt2)/vmlinuz-{kernel} {options}", (driver, version), "extra/nvidia", ".ko.xz", "usr/lib64")
    image = f"boot/initramfs-{kernel}.img"
    files |= efi() | programs("akmods", "dnf", "dracut", "grubby", "lsinitrd", "rpm") | {
        f"boot/vmlinuz-{kernel}": "", image: "", f"boot/config-{kernel}": 'CONFIG_CC_VERSION_TEXT="gcc (GCC) 15.2.1 20251022 (Red Hat 15.2.1-3)"\n',
        "boot/grub2/grub.cfg": "", "boot/grub2/grubenv": f"# GRUB Environment Block\nsaved_entry={NO_ID}-{kernel}\n".ljust(1024, "#"),
        f"boot/loader/entries/{NO_ID}-{kernel}.conf": f"title Fedora Linux ({kernel}) 43 (Server Edition)\nversion {kernel}\nlinux /vmlinuz-{kernel}\n"
                                                       f"initrd /initramfs-{kernel}.img\noptions {options}\n",
        "etc/default/grub": f'GRUB_TIMEOUT=5\nGRUB_DEFAULT=saved\nGRUB_CMDLINE_LINUX="rhgb quiet {nouveau}"\nGRUB_ENABLE_BLSCFG=true\n',
        "usr/lib/modprobe.d/nvidia.conf": "options nvidia_drm modeset=1 fbdev=1\n",
        "commands/lsinitrd.json": command(["lsinitrd", f"/{image}"], "-rw-r--r--   1 root     root           38 Oct 29  2025 usr/lib/modprobe.d/nvidia.conf\n"),
        "proc/self/mountinfo": "25 1 0:27 /root / rw,relatime shared:1 - btrfs /dev/nvme0n1p3 rw\n"
                               "26 25 259:2 / /boot rw,relatime shared:2 - ext4 /dev/nvme0n1p2 rw\n"
                               "27 26 259:1 / /boot/efi rw,relatime shared:3 - vfat /dev/nvme0n1p1 rw\n"}
    return Machine("fedora43-rtx4090-x2", "Two RTX 4090, Fedora 43 with GRUB and entries of the boot loader specification, RPM Fusion's driver",
                   "issue 61; cases.md version-open-555-fedora-gcc14 (such a driver), Fedora's installer", redirecting(), "DMA-FQ",
                   files | IVHD | refused(version), "iommu",
                   "the IOMMU translates and the ports redirect; behind that, no apt replaces the driver: a person puts other modules in its place",
                   (), False, outlook="person", blocked_by="boot-loader")


def proxmox9():
    kernel, version, compiler = "6.17.2-1-pve", "580.105.08", "gcc (Debian 14.2.0-19) 14.2.0"
    banner = (f"Linux version {kernel} (build@proxmox) ({compiler}, GNU ld (GNU Binutils for Debian) 2.44) #1 SMP PREEMPT_DYNAMIC "
              "PMX 6.17.2-1 (2025-10-21T11:55Z)")
    system = System("debian13", kernel, compiler, 14, "6.17.2-1", banner, DEBIAN["debian13"])
    driver = StockDriver(system, version, "Wed Oct 29 22:15:27 UTC 2025", "gcc version 14.2.0 (Debian 14.2.0-19) ", "nvidia", {}, (), "")
    files = stock(system, "quiet", driver)
    kernel_packages = {f"proxmox-kernel-{kernel}-signed": "6.17.2-1", f"proxmox-headers-{kernel}": "6.17.2-1", "proxmox-ve": "9.1.0", "pve-manager": "9.1.1"}
    files |= packages(kernel_packages, (), (), system.base) | efi(loader="systemd-boot 257.9-1~deb13u1") | selected(f"proxmox-{kernel}.conf")
    files |= {f"var/lib/dpkg/info/{name}.list": "" for name in ("pve-manager", f"proxmox-kernel-{kernel}-signed")} | {
        "proc/cmdline": rf"initrd=\EFI\proxmox\{kernel}\initrd.img-{kernel} root=ZFS=rpool/ROOT/pve-1 boot=zfs" + "\n",
        "proc/self/mountinfo": "25 1 0:27 / / rw,relatime shared:1 - zfs rpool/ROOT/pve-1 rw,xattr,posixacl\n",
        "etc/kernel/cmdline": "root=ZFS=rpool/ROOT/pve-1 boot=zfs\n", "etc/kernel/proxmox-boot-uuids": "0000-0000\n0000-0000\n",
        "etc/modprobe.d/pve-blacklist.conf": "# This file contains a list of modules which are not supported by Proxmox VE\n\n"
                                             "# nvidiafb see bugreport https://bugzilla.proxmox.com/show_bug.cgi?id=701\nblacklist nvidiafb\n",
        "etc/modprobe.d/nvidia-installer-disable-nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
        "etc/pve/lxc/105.conf": "dev0: /dev/nvidia0\ndev1: /dev/nvidiactl\ndev2: /dev/nvidia-uvm\n",
        "usr/bin/nvidia-uninstall": PROGRAM, "usr/sbin/proxmox-boot-tool": PROGRAM}
    return Machine("proxmox9-rtx4090-x2", "Two RTX 4090 on Proxmox VE 9, ZFS on two disks, systemd-boot, a container with a GPU; NVIDIA's runfile",
                   "issue 61; cases.md proxmox-6.17-pve-550-dkms-error2 (such a host), src/proxmox-boot of proxmox-kernel-helper", redirecting(),
                   "DMA-FQ", files | IVHD | refused(version), "iommu",
                   "systemd-boot boots this host from two EFI partitions: iommu=pt and the ports' pci=disable_acs_redir= go into /etc/kernel/cmdline",
                   ["the container has libraries of its own, which must be of the driver's version"], False)


def system_cases():
    return [cachyos(), fedora(), proxmox9()]
