# SPDX-License-Identifier: MIT
"""The driver for Ubuntu 22.04 and 24.04, flavour 570: names, relations and places of nvidia-graphics-drivers-570 as its packaging
(debian/templates/control.in) has them, and prebuilt modules in the packages that linux-restricted-modules makes."""

import pathlib

from . import debian, libraries, source, tree
from .debs import Package

HERE = pathlib.Path(__file__).resolve().parents[1] / "ubuntu"
LIB = debian.LIB
CUDA = ", ".join(f"libcuda-{v}-1" for v in ("11.8", "12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.7", "12.8"))

# codename -> what ends the version, kernel with prebuilt modules
RELEASES = {"jammy": ("0ubuntu0.22.04.1", "5.15.0-140-generic"), "noble": ("0ubuntu0.24.04.1", "6.8.0-60-generic")}


def text(name, **values):
    content = (HERE / name).read_text()
    for key, value in values.items():
        content = content.replace(f"@{key.upper()}@", value)
    return content


def alone(provides, **relations):
    """Relations of a package of which one flavour can be installed."""
    return {"Provides": provides, "Conflicts": provides, "Replaces": provides, **relations}


def kernel_packages(v, r):
    sources = {**source.kernel_open(v, True), "dkms.conf": text("dkms.conf", version=v)}
    return [
        Package("nvidia-dkms-570-open", r,
                alone("nvidia-dkms-kernel", **{"Multi-Arch": "foreign", "Depends":
                      f"dkms, nvidia-kernel-source-570-open (>= {v}), nvidia-kernel-common-570 (>= {v})"}),
                scripts=debian.scripts("nvidia-dkms-570-open", HERE, version=v)),
        Package("nvidia-kernel-source-570-open", r, alone("nvidia-kernel-source", **{"Multi-Arch": "foreign"}),
                tree.below(f"usr/src/nvidia-{v}", sources)),
        Package("nvidia-kernel-common-570", r,
                alone("nvidia-kernel-common", Depends=f"nvidia-firmware-570-{v}", Recommends="nvidia-modprobe"),
                {"lib/modprobe.d/nvidia-graphics-drivers.conf": text("nvidia-graphics-drivers.conf"),
                 "etc/modprobe.d/nvidia-graphics-drivers-kms.conf": text("nvidia-graphics-drivers-kms.conf"),
                 "lib/udev/rules.d/71-nvidia.rules": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", RUN+="/sbin/modprobe nvidia-uvm"\n'}),
        Package(f"nvidia-firmware-570-{v}", r, {"Breaks": f"nvidia-firmware-570-server-{v}", "Replaces": f"nvidia-firmware-570-server-{v}"},
                tree.below(f"lib/firmware/nvidia/{v}", libraries.firmware(v))),
    ]


def user_packages(v, r, given):
    def lib(name, names, **relations):
        return Package(f"{name}-570", r, alone(name, **{"Multi-Arch": "same", **relations}), debian.libs(names, v, given, LIB))
    everything = ", ".join(f"{name} (= {r})" for name in (
        "libnvidia-compute-570", "libnvidia-extra-570", "nvidia-compute-utils-570", "libnvidia-decode-570", "libnvidia-encode-570",
        "nvidia-utils-570", "xserver-xorg-video-nvidia-570", "libnvidia-cfg1-570", "libnvidia-fbc1-570"))
    return [
        Package("libnvidia-compute-570", r,
                {"Multi-Arch": "same", "Conflicts": f"libnvidia-compute, {CUDA}", "Replaces": "libnvidia-compute",
                 "Provides": f"libnvidia-compute, libnvidia-ml.so.1 (= {v}), libnvidia-ml1 (= {v}), {CUDA}, libcuda.so.1 (= {v}), libcuda1 (= {v})"},
                debian.libs(["libcuda", "libcudadebugger", "libnvidia-ml", "libnvidia-ptxjitcompiler"], v, given, LIB)),
        lib("libnvidia-gl", ["libGLX_nvidia", "libEGL_nvidia", "libnvidia-glcore", "libnvidia-eglcore"],
            Depends="libnvidia-common-570", Provides="libnvidia-gl, libglx-vendor, libegl-vendor"),
        lib("libnvidia-common", []),
        lib("libnvidia-extra", []),
        lib("libnvidia-cfg1", ["libnvidia-cfg"], Provides="libnvidia-cfg1-any", Conflicts="libnvidia-cfg1-any", Replaces="libnvidia-cfg1-any"),
        lib("libnvidia-decode", ["libnvcuvid"], Depends=f"libnvidia-compute-570 (= {r})"),
        lib("libnvidia-encode", ["libnvidia-encode"]),
        lib("libnvidia-fbc1", ["libnvidia-fbc"]),
        Package("nvidia-utils-570", r, alone("nvidia-utils, nvidia-smi", Suggests="nvidia-driver-570"),
                {"usr/bin/nvidia-smi": libraries.program("nvidia-smi", v)}),
        Package("nvidia-compute-utils-570", r,
                alone("nvidia-compute-utils, nvidia-persistenced", Depends="libnvidia-compute-570, adduser"),
                {"usr/bin/nvidia-persistenced": libraries.program("nvidia-persistenced", v),
                 "lib/systemd/system/nvidia-persistenced.service": text("nvidia-persistenced.service")},
                debian.scripts("nvidia-compute-utils-570", HERE)),
        Package("xserver-xorg-video-nvidia-570", r,
                alone("xorg-driver-binary, nvidia-driver-binary", Depends=f"libnvidia-cfg1-570 (= {r})"),
                {f"{LIB}/nvidia/xorg/nvidia_drv.so": libraries.built("libnvidia-glcore", v)}, section="non-free/x11"),
        Package("nvidia-driver-570-open", r,
                {"Depends": f"libnvidia-gl-570 (= {r}), nvidia-dkms-570-open (>= {v}), "
                            f"nvidia-kernel-common-570 (>= {v}), nvidia-kernel-source-570-open (= {r}), {everything}",
                 "Recommends": "nvidia-settings"}),
        Package("nvidia-settings", r, {}, section="main/x11"),
        Package("nvidia-modprobe", r, {"Multi-Arch": "foreign"}, {"usr/bin/nvidia-modprobe": libraries.program("nvidia-modprobe", v)}),
    ]


def prebuilt_packages(v, r, kernel):
    """linux-modules-nvidia-570-open-KERNEL and what it is made of. The module itself is a stand-in: an ELF object of its name."""
    own = f"{kernel.removesuffix('-generic')}.1+{v}"
    place, series = f"lib/modules/{kernel}/kernel/nvidia-570-open", kernel.rsplit("-", 1)[1]
    bits = {f"{place}/bits/nvidia{part}.ko": source.kernel_open(v, True)["nvidia/nv-kernel.o_binary"]
            for part in ("", "-modeset", "-drm", "-uvm", "-peermem")}
    signed = f"linux-signatures-nvidia-{kernel}"
    modules = f"linux-modules-nvidia-570-open-{kernel}"
    return [
        Package(modules, own,
                {"Depends": f"linux-image-{kernel} | linux-image-unsigned-{kernel}, linux-objects-nvidia-570-open-{kernel} (= {own}), "
                            f"{signed} (= {own}), nvidia-kernel-common-570 (>= {v})"},
                scripts=debian.scripts("linux-modules-nvidia", HERE, kernel=kernel), section="restricted/kernel"),
        Package(f"linux-objects-nvidia-570-open-{kernel}", own, {"Recommends": modules}, bits, section="restricted/kernel"),
        Package(signed, own, {}, {f"{place}/bits/SHA256SUMS": "stand-in for signatures\n"}, section="restricted/kernel"),
        Package(f"linux-modules-nvidia-570-open-{series}", own,
                {"Depends": f"{modules} (= {own})"}, section="restricted/kernel"),
    ]


def packages(codename, versions, given):
    ending, kernel = RELEASES[codename]
    found = []
    for v in versions:
        r = f"{v}-{ending}"
        for package in kernel_packages(v, r) + user_packages(v, r, given):
            package.section = package.section.replace("non-free", "restricted")
            package.source = "" if package.name in ("nvidia-settings", "nvidia-modprobe") else "nvidia-graphics-drivers-570"
            found.append(package)
        found += prebuilt_packages(v, r, kernel)
    return found
