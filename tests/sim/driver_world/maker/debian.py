# SPDX-License-Identifier: MIT
"""The driver for Debian 12 and 13. Names, relations, places and what maintainer scripts do are those of Debian's 535.261.03-1 and
550.163.01-2, of glx-alternatives 1.2.2 and nvidia-support 20220217+3 and 20240109+1, carried over to 570 (README.md says what is not);
nvidia-kernel-open-dkms is what NVIDIA's own repository for Debian 12 calls the package that Debian calls nvidia-open-kernel-dkms.

Compared were control files, conffiles, maintainer scripts, lists of files, dkms.conf and modprobe files of 40 packages. Debian 13 has
libnvidia-gpucomp, newer relations to dkms, firmware, units and rules of udev below usr/lib, and nvidia-modprobe, nvidia-persistenced and
nvidia-settings of versions of their own. Module names, install lines, alternatives and diversions are those of Debian 12."""

import dataclasses

from . import libraries, source, tree
from .debs import Package, Texts

TEXTS = Texts("debian.files")
LIB, CURRENT = "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current"
CUDA = ", ".join(f"libcuda-{v}-1" for v in ("11.8", "12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.7", "12.8"))
CLEANUP, LEGACY = "nvidia-installer-cleanup", "nvidia-legacy-check (>= 495)"
GLX = "1.2.2"


@dataclasses.dataclass(frozen=True)
class Release:
    """Properties that differ between releases of Debian."""
    support: str     # version of nvidia-support
    revision: str
    dkms_package: str
    dkms: str        # the oldest that the package takes
    lib: str         # where files of /lib are in packages
    modprobe: str    # version of nvidia-modprobe; empty: the driver's
    gpucomp: bool    # has libnvidia-gpucomp


RELEASES = {
    "bookworm": Release("20220217+3~deb12u1", "1", "nvidia-kernel-open-dkms", "3.0.3-4~", "lib", "", False),
    "trixie": Release("20240109+1", "2", "nvidia-open-kernel-dkms", "3.0.11", "usr/lib", "570.144-1", True),
}


def libs(names, version, given=None, folder=CURRENT):
    return {f"{folder}/{name}": entry for lib in names for name, entry in libraries.library(lib, version, given).items()}


def support_packages(release):
    """Packages with versions of their own, which stay while the driver is upgraded."""
    def glx(name, relations, **more):
        return Package(name, GLX, relations, scripts=TEXTS.scripts(name), section="contrib/libs", **more)
    return [
        glx("update-glx", {"Pre-Depends": "dpkg (>= 1.17.21)"}, files={"usr/sbin/update-glx": ("program", TEXTS.text("update-glx"))}),
        glx("glx-alternative-mesa", {"Multi-Arch": "foreign", "Depends": f"update-glx (= {GLX})", "Recommends": "glx-diversions"},
            triggers="interest-await register-glx-alternative-mesa\n"),
        glx("glx-diversions", {"Multi-Arch": "foreign", "Pre-Depends": CLEANUP, "Depends": f"glx-alternative-mesa (= {GLX})"}),
        glx("glx-alternative-nvidia",
            {"Multi-Arch": "foreign", "Pre-Depends": "dpkg (>= 1.17.21)", "Suggests": "nvidia-driver | nvidia-driver-any",
             "Depends": f"update-glx (= {GLX}), glx-diversions (= {GLX}), glx-alternative-mesa"},
            triggers="interest-await register-glx-alternative-nvidia\n",
            files={"usr/share/initramfs-tools/hooks/zz_nvidia-blacklists-nouveau": ("program", TEXTS.text("zz_nvidia-blacklists-nouveau"))}),
        Package(CLEANUP, release.support, {"Multi-Arch": "foreign", "Conflicts": "nvidia-current, nvidia-driver-binary"},
                {"usr/lib/nvidia/alternate-install-present": "Please use the Debian packages instead of the .run file.\n",
                 "usr/lib/nvidia/pre-install": ("program", TEXTS.text("pre-install"))}, TEXTS.scripts(CLEANUP), "contrib/misc"),
        Package("nvidia-support", release.support, {"Multi-Arch": "foreign"}, section="contrib/misc"),
        Package("nvidia-kernel-common", release.support, {"Multi-Arch": "foreign"},
                {f"{release.lib}/udev/rules.d/60-nvidia-kernel-common.rules": 'DRIVER=="nvidia", ENV{NVIDIA_DEVICE}="1"\n'},
                section="contrib/kernel"),
    ]


def kernel_packages(release, v, r):
    conf = {f"etc/nvidia/current-open/{name}": TEXTS.text(name) for name in
            ("nvidia-modprobe.conf", "nvidia-blacklists-nouveau.conf", "nvidia-load.conf", "nvidia-options.conf")}
    sources = {**source.kernel_open(v, True), "dkms.conf": TEXTS.text("dkms.conf", version=v)}
    return [
        Package(release.dkms_package, r,
                {"Multi-Arch": "foreign", "Pre-Depends": CLEANUP,
                 "Provides": f"nvidia-open-kernel-{v}, nvidia-open-kernel-dkms-any (= {v})",
                 "Depends": f"firmware-nvidia-gsp (= {v}) | firmware-nvidia-gsp-{v}, nvidia-open-kernel-support--v1, dkms (>= {release.dkms})"},
                tree.below(f"usr/src/nvidia-current-open-{v}", sources), TEXTS.scripts("nvidia-kernel-open-dkms", version=v), "contrib/kernel"),
        Package("nvidia-open-kernel-support", r,
                {"Multi-Arch": "foreign", "Conflicts": f"nvidia-open-kernel-support-{v}",
                 "Provides": f"nvidia-kernel-support-any, nvidia-open-kernel-support--v1, nvidia-open-kernel-support-{v}",
                 "Depends": f"nvidia-alternative-{v}, nvidia-kernel-common (>= 20151021), nvidia-modprobe (>= 570)"},
                {**conf, f"etc/nvidia/{v}-open": ("link", "current-open")}, section="contrib/kernel"),
        Package("firmware-nvidia-gsp", r,
                {"Multi-Arch": "foreign", "Provides": f"firmware-nvidia-gsp (= {v}), firmware-nvidia-gsp-{v}", "Conflicts": f"firmware-nvidia-gsp-{v}"},
                tree.below(f"{release.lib}/firmware/nvidia/{v}", libraries.firmware(v)), section="non-free-firmware/kernel"),
    ]


def library_packages(release, v, r, given):
    alternative = f"nvidia-alternative (= {r})"
    core = f"libc6 (>= 2.34), libnvidia-gpucomp (= {r})" if release.gpucomp else "libc6 (>= 2.34)"
    kernel = f"nvidia-kernel-dkms (= {r}) | nvidia-kernel-{v} | nvidia-open-kernel-{v}"

    def lib(name, names, depends=alternative, **relations):
        return Package(name, r, {"Multi-Arch": "same", "Depends": depends, **relations}, libs(names, v, given))
    gpucomp = [lib("libnvidia-gpucomp", ["libnvidia-gpucomp"], "libc6 (>= 2.34)", Provides=f"libnvidia-gpucomp-{v}",
                   Conflicts=f"libnvidia-gpucomp-{v}")]
    return (gpucomp if release.gpucomp else []) + [
        lib("libcuda1", ["libcuda", "libcudadebugger"], f"nvidia-support, {alternative}, libnvidia-ptxjitcompiler1 (= {r})",
            **{"Pre-Depends": LEGACY, "Provides": f"{CUDA}, libcuda.so.1 (= {v}), libcuda1-any",
               "Recommends": f"{kernel}, nvidia-smi, libnvidia-cfg1 (= {r}), nvidia-persistenced (>= 570)"}),
        lib("libnvidia-ml1", ["libnvidia-ml"], Provides=f"libnvidia-ml.so.1 (= {v})"),
        lib("libnvidia-ptxjitcompiler1", ["libnvidia-ptxjitcompiler"], "libc6 (>= 2.34)"),
        lib("libnvidia-cfg1", ["libnvidia-cfg"], Provides=f"libnvidia-cfg.so.1 (= {v}), libnvidia-cfg1-any"),
        lib("libnvidia-glcore", ["libnvidia-glcore"], core),
        lib("libnvidia-eglcore", ["libnvidia-eglcore"], core),
        lib("libgl1-nvidia-glvnd-glx", [], f"nvidia-alternative, libglx-nvidia0 (= {r})", Provides="libgl1-nvidia-glx-any"),
        lib("libglx-nvidia0", ["libGLX_nvidia"], f"{alternative}, libnvidia-glcore (= {r})"),
        lib("libegl-nvidia0", ["libEGL_nvidia"], f"{alternative}, libnvidia-eglcore (= {r})"),
        lib("nvidia-egl-icd", [], f"libegl-nvidia0 (= {r})"),
        lib("nvidia-vdpau-driver", ["libvdpau_nvidia"], f"{alternative}, libc6 (>= 2.34)"),
        lib("nvidia-driver-libs", [], f"libgl1-nvidia-glvnd-glx (= {r}), nvidia-egl-icd (= {r})", Provides="nvidia-driver-libs-any",
            Recommends=f"libglx-nvidia0 (= {r}), libnvidia-cfg1 (= {r})"),
    ]


def program_packages(release, v, r):
    alternative, own = f"nvidia-alternative (= {r})", f"{v}-1"  # own: of sources of their own
    return [
        Package("nvidia-alternative", r,
                {"Multi-Arch": "foreign", "Pre-Depends": f"dpkg (>= 1.17.21), {LEGACY}", "Depends": "glx-alternative-nvidia (>= 1.2)",
                 "Provides": f"nvidia-alternative--kmod-alias, nvidia-alternative-{v}, nvidia-alternative-any"},
                {"usr/lib/nvidia/current-open/.keep": ""}, TEXTS.scripts("nvidia-alternative"),
                triggers="interest-await register-nvidia-alternative\ninterest-await /etc/nvidia/current-open\n"
                         "interest-await /usr/lib/nvidia/current\ninterest-await /usr/lib/x86_64-linux-gnu/nvidia/current\n"),
        Package("nvidia-legacy-check", r, {"Multi-Arch": "foreign", "Pre-Depends": f"pciutils, {CLEANUP} (>= 20151021)"}),
        Package("nvidia-driver-bin", r, {"Depends": f"{alternative}, libnvidia-ml1 (>= 319) | libnvidia-ml.so.1 (>= 319)",
                                         "Provides": f"nvidia-driver-bin-{v}", "Conflicts": f"nvidia-driver-bin-{v}",
                                         "Recommends": "nvidia-driver"}, section="non-free/x11"),
        Package("nvidia-smi", r, {"Depends": f"{alternative}, libnvidia-ml1 (= {r})"},
                {"usr/lib/nvidia/current/nvidia-smi": libraries.program("nvidia-smi", v)}, section="non-free/utils"),
        Package("xserver-xorg-video-nvidia", r,
                {"Pre-Depends": f"{CLEANUP}, {LEGACY}", "Depends": f"{alternative}, nvidia-support, libnvidia-glcore (= {r})",
                 "Recommends": "nvidia-driver (>= 570), nvidia-settings (>= 570)", "Provides": "xorg-driver-video, xserver-xorg-video-nvidia-any"},
                {"usr/lib/nvidia/current/nvidia_drv.so": libraries.built("libnvidia-glcore", v)}, section="non-free/x11"),
        Package("nvidia-driver", r,
                {"Pre-Depends": f"{CLEANUP}, {LEGACY}", "Provides": "nvidia-driver-any, nvidia-glx-any",
                 "Depends": f"nvidia-driver-libs (= {r}), nvidia-driver-bin (= {r}), xserver-xorg-video-nvidia (= {r}), "
                            f"nvidia-vdpau-driver (= {r}), {alternative}, nvidia-kernel-dkms (= {r}) | nvidia-kernel-{v} | "
                            f"nvidia-open-kernel-{v}, nvidia-support",
                 "Recommends": f"nvidia-settings (>= 570), libnvidia-cfg1 (= {r}), nvidia-persistenced (>= 570)"}, section="non-free/x11"),
        Package("nvidia-settings", own, {"Pre-Depends": CLEANUP, "Depends": "nvidia-alternative", "Recommends": "libnvidia-ml1"}, section="contrib/x11"),
        Package("nvidia-persistenced", own,
                {"Multi-Arch": "foreign", "Pre-Depends": "init-system-helpers (>= 1.54~)",
                 "Depends": "libnvidia-cfg1 | libnvidia-cfg.so.1 | libnvidia-cfg1-any, adduser"},
                {"usr/bin/nvidia-persistenced": libraries.program("nvidia-persistenced", v),
                 f"{release.lib}/systemd/system/nvidia-persistenced.service": TEXTS.text("nvidia-persistenced.service")},
                TEXTS.scripts("nvidia-persistenced"), "contrib/utils"),
    ]


def modprobe_packages(release, versions):
    return [Package("nvidia-modprobe", version, {"Multi-Arch": "foreign"},
                    {"usr/bin/nvidia-modprobe": libraries.program("nvidia-modprobe", version.partition("-")[0])}, section="contrib/utils")
            for version in ([release.modprobe] if release.modprobe else [f"{v}-1" for v in versions])]


def source_of(name):
    if name in ("nvidia-persistenced", "nvidia-settings", "nvidia-modprobe", "nvidia-support"):
        return ""
    if name in ("nvidia-kernel-common", CLEANUP):
        return "nvidia-support"
    if name.startswith("glx-") or name == "update-glx":
        return "glx-alternatives"
    return "nvidia-open-gpu-kernel-modules" if "open" in name else "nvidia-graphics-drivers"


def packages(codename, versions, given):
    release = RELEASES[codename]
    found = support_packages(release) + modprobe_packages(release, versions)
    for v in versions:
        r = f"{v}-{release.revision}"
        found += kernel_packages(release, v, r) + library_packages(release, v, r, given) + program_packages(release, v, r)
    for package in found:
        package.source = source_of(package.name)
    return found
