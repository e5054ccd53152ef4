# SPDX-License-Identifier: MIT
"""Software installed on a made machine that has its distribution's own driver, built by DKMS, or none."""

from .installed import (BANNER, DEBIAN_CC, KERNEL, PACKAGES, PROGRAM, PROGRAMS, board, efi, headers, kernel_image, kernel_log,
                        load_lines, loaded, modules, mounted, packages, userspace)
from .software import DEBIAN_NVIDIA_OPTIONS, UBUNTU_NVIDIA_OPTIONS, Driver, software

BASE = [program for program in PROGRAMS if "nvidia" not in program and "gcc-" not in program]


class System:
    """A distribution with one kernel: `compiler` as CONFIG_CC_VERSION_TEXT has it, `built` as the image's package has it."""

    def __init__(self, release, kernel, compiler, gcc, built, banner, base):
        self.release, self.kernel, self.compiler, self.gcc = release, kernel, compiler, gcc
        self.built, self.banner, self.base = built, banner, base

    @property
    def module_suffix(self):
        return {"ubuntu24": ".ko.zst", "ubuntu26": ".ko.zst", "debian13": ".ko.xz"}.get(self.release, ".ko")


def ubuntu(release, kernel, compiler, gcc, built, what):
    linker, base = UBUNTU[release]
    banner = f"Linux version {kernel} (buildd@host) ({compiler}, GNU ld (GNU Binutils for Ubuntu) {linker}) {what}"
    return System(release, kernel, compiler, gcc, built, banner, base | {f"gcc-{gcc}": compiler.rsplit("Ubuntu ")[1].split(")")[0]})


# version of ld, then packages
UBUNTU = {
    "ubuntu22": ("2.38", {"dkms": "2.8.7-2ubuntu2.2", "git": "1:2.34.1-1ubuntu1.12", "grub-efi-amd64": "2.06-2ubuntu14.7",
                          "libc6": "2.35-0ubuntu3.9", "linux-base": "4.5ubuntu9", "make": "4.3-4.1build1",
                          "unattended-upgrades": "2.8ubuntu1"}),
    "ubuntu24": ("2.42", {"dkms": "3.0.11-1ubuntu13", "git": "1:2.43.0-1ubuntu7.2", "grub-efi-amd64": "2.12-1ubuntu7.3",
                          "libc6": "2.39-0ubuntu8.4", "linux-base": "4.5ubuntu9", "make": "4.3-4.1build2",
                          "unattended-upgrades": "2.9.1+nmu4ubuntu1"}),
    "ubuntu26": ("2.45.50", {"dkms": "3.2.2-1ubuntu1", "git": "1:2.51.0-1ubuntu1", "grub-efi-amd64": "2.14-2ubuntu1", "libc6": "2.43-2ubuntu1",
                             "linux-base": "4.15ubuntu1", "make": "4.4.1-3", "unattended-upgrades": "2.12ubuntu5"}),
}
DEBIAN = {"debian13": {"dkms": "3.2.2-1~deb13u1", "gcc-14": "14.2.0-19", "git": "1:2.47.3-0+deb13u1", "make": "4.4.1-2", "grub-efi-amd64": "2.12-9",
                       "linux-base": "4.12", "libc6": "2.41-12"}}
NOBLE = ubuntu("ubuntu24", "6.8.0-60-generic", "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13, "6.8.0-60.63",
               "#63-Ubuntu SMP PREEMPT_DYNAMIC Tue Apr 15 19:04:15 UTC 2025")
JAMMY_HWE = ubuntu("ubuntu22", "6.8.0-52-generic", "x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0", 12,
                   "6.8.0-52.53~22.04.1", "#53~22.04.1-Ubuntu SMP PREEMPT_DYNAMIC Wed Jan 15 19:18:46 UTC 2025")
JAMMY = ubuntu("ubuntu22", "5.15.0-139-generic", "gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", 11, "5.15.0-139.149",
               "#149-Ubuntu SMP Fri Apr 11 22:06:13 UTC 2025")
BOOKWORM = System("debian12", KERNEL, DEBIAN_CC, 12, "6.1.140-1", BANNER, PACKAGES)


class StockDriver:
    """A driver by packages: `base` is the name of its module file, `names` to `package_version` are its packages. `prebuilt`: where
    modules lie that packages of the kernel brought; DKMS has no part in them."""

    def __init__(self, system, version, built, compiler, base, options, names, package_version, open_module=True, prebuilt=""):
        self.system, self.version, self.built, self.open_module = system, version, built, open_module
        self.banner, self.base, self.options, self.prebuilt = Driver(version, built, compiler, open_module), base, options, prebuilt
        self.packages = {name: package_version for name in names}

    def files(self):
        """The driver in the kernel, on disk and in DKMS."""
        kernel, flavour = self.system.kernel, "stock" if self.open_module else "proprietary"
        suffix = ".ko" if self.prebuilt else self.system.module_suffix
        kind = "Open Kernel Module for x86_64" if self.open_module else "x86_64 Kernel Module"
        release = "  Release Build  (dvs-builder@host)" if self.open_module else ""
        lines = (*load_lines(self.version)[:2], f"NVRM: loading NVIDIA UNIX {kind}  {self.version}{release}  {self.built}")
        tree = f"var/lib/dkms/{self.base}/{self.version}/"
        by_dkms = {} if self.prebuilt else {tree + "source": ("link", f"/usr/src/{self.base}-{self.version}"),
                                            f"{tree}{kernel}/x86_64/module/{self.base}{suffix}": ""}
        return (self.banner.files | modules(kernel, self.version, flavour, self.prebuilt or "updates/dkms", self.open_module, self.base, suffix)
                | loaded(self.version, flavour) | userspace(self.version) | kernel_log(*lines, banner=self.system.banner)
                | {f"usr/lib/firmware/nvidia/{self.version}/gsp_ga10x.bin": "", "usr/bin/nvidia-smi": PROGRAM} | by_dkms)


def ubuntu_driver(system, version, built, compiler, package_version):
    series = version.split(".", 1)[0]
    names = [f"nvidia-{what}-{series}-open" for what in ("driver", "dkms", "kernel-source")]
    names += [f"libnvidia-compute-{series}", f"libnvidia-gl-{series}", f"nvidia-compute-utils-{series}", f"nvidia-utils-{series}",
              f"nvidia-kernel-common-{series}", f"nvidia-firmware-{series}-{version}"]
    return StockDriver(system, version, built, compiler, "nvidia", UBUNTU_NVIDIA_OPTIONS, names, package_version)


def ubuntu_prebuilt_driver(system, version, built, compiler, package_version, series):
    """Modules that Ubuntu builds and signs, as ubuntu-drivers installs them; `series` is of the kernel: "generic-hwe-24.04"."""
    branch, kernel = version.split(".", 1)[0], system.kernel
    names = [f"nvidia-{what}-{branch}-open" for what in ("driver", "kernel-source")]
    names += [f"libnvidia-{what}-{branch}" for what in ("cfg1", "common", "compute", "decode", "encode", "extra", "fbc1", "gl")]
    names += [f"nvidia-{what}-{branch}" for what in ("compute-utils", "utils", "kernel-common")] + [f"nvidia-firmware-{branch}-{version}"]
    names += [f"xserver-xorg-video-nvidia-{branch}"]
    driver = StockDriver(system, version, built, compiler, "nvidia", UBUNTU_NVIDIA_OPTIONS, names, package_version,
                         prebuilt=f"kernel/nvidia-{branch}-open")
    own = [f"linux-modules-nvidia-{branch}-open-{which}" for which in (kernel, series)]
    own += [f"linux-objects-nvidia-{branch}-open-{kernel}", f"linux-signatures-nvidia-{kernel}"]
    driver.packages |= {name: system.built + "+1" for name in own}
    return driver


def debian_driver(version, built, compiler, package_version, open_module=True, system=BOOKWORM):
    base = "nvidia-current-open" if open_module else "nvidia-current"
    names = ["nvidia-driver", "nvidia-open-kernel-dkms" if open_module else "nvidia-kernel-dkms", "nvidia-kernel-support",
             "libcuda1", "libnvidia-ml1", "nvidia-alternative", "nvidia-smi", "firmware-nvidia-gsp"]
    options = DEBIAN_NVIDIA_OPTIONS | {"etc/modprobe.d/nvidia.conf": f"install nvidia modprobe -i {base} $CMDLINE_OPTS\n"}
    return StockDriver(system, version, built, compiler, base, options, names, package_version, open_module)


def stock(system, arguments="", driver=None, without=()):
    """Everything but the PCI tree, the board's own and the IOMMU of such a host; `without`: packages that are not installed."""
    kernel = system.kernel
    base = {name: version for name, version in system.base.items() if name not in without}
    programs = [program for program in (*BASE, f"usr/bin/gcc-{system.gcc}") if program.removeprefix("usr/bin/") not in without]
    files = software(system.release, kernel, arguments, None, driver.options if driver else None)
    files |= board() | efi() | kernel_image(kernel, system.compiler) | headers(kernel)
    files |= packages(driver.packages if driver else None, (kernel,), (kernel,), base, system.built)
    files |= driver.files() if driver else kernel_log(banner=system.banner) | {"proc/modules": ""}
    if system.release.startswith("ubuntu"):
        files["etc/apt/apt.conf.d/20auto-upgrades"] = ('APT::Periodic::Update-Package-Lists "1";\n'
                                                       'APT::Periodic::Unattended-Upgrade "1";\n')
    return files | {program: PROGRAM for program in programs} | {
        "proc/version": system.banner + "\n", "proc/self/mountinfo": mounted("/dev/nvme0n1p2", "ext4", "259:2"),
        "sys/firmware/acpi/tables/FACP": ""}
