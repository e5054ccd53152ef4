# SPDX-License-Identifier: MIT
"""The driver for Ubuntu 22.04 and 24.04, flavour 570: names, relations and places of nvidia-graphics-drivers-570 as its packaging
(debian/templates/control.in) has them, and prebuilt modules in the packages that linux-restricted-modules makes.

Of those, names, versions and relations are as users' apt shows them. The modules of a kernel need the driver of just their version, and so
does the package that follows a series of kernels; that one provides nvidia-dkms-570-open. Other builds for the same kernel, of the same
driver or of a newer one, end in +1, +2."""

import dataclasses
import functools
import hashlib
import pathlib
import struct
import tempfile

from . import debian, libraries, source, tree
from .debs import Package, Texts

TEXTS = Texts("ubuntu.files")
LIB = debian.LIB
CUDA = ", ".join(f"libcuda-{v}-1" for v in ("11.8", "12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.7", "12.8"))


@dataclasses.dataclass(frozen=True)
class Release:
    ending: str   # of the driver's versions
    series: str   # of the kernels with prebuilt modules, as the package that follows it has it in its name
    kernels: dict  # release to version, of those kernels


RELEASES = {
    "jammy": Release("0ubuntu0.22.04.1", "generic", {"5.15.0-140-generic": "5.15.0-140.150", "5.15.0-142-generic": "5.15.0-142.152"}),
    "noble": Release("0ubuntu0.24.04.1", "generic-hwe-24.04",
                     {"6.14.0-24-generic": "6.14.0-24.24~24.04.3", "6.14.0-27-generic": "6.14.0-27.27~24.04.1"}),
}
DEPENDS = {"nvidia": "", "nvidia-modeset": "nvidia", "nvidia-drm": "nvidia-modeset", "nvidia-uvm": "nvidia", "nvidia-peermem": "nvidia"}


def alone(provides, **relations):
    """Relations of a package of which one flavour can be installed."""
    return {"Provides": provides, "Conflicts": provides, "Replaces": provides, **relations}


def just(package, v):
    """A relation to any package of one version of the driver."""
    return f"{package} (<= {v}-1), {package} (>= {v})"


def kernel_packages(v, r):
    sources = {**source.kernel_open(v, True), "dkms.conf": TEXTS.text("dkms.conf", version=v)}
    return [
        Package("nvidia-dkms-570-open", r,
                alone("nvidia-dkms-kernel", **{"Multi-Arch": "foreign", "Depends":
                      f"dkms, {just('nvidia-kernel-source-570-open', v)}, {just('nvidia-kernel-common-570', v)}"}),
                scripts=TEXTS.scripts("nvidia-dkms-570-open", version=v)),
        Package("nvidia-kernel-source-570-open", r, alone("nvidia-kernel-source", **{"Multi-Arch": "foreign"}),
                tree.below(f"usr/src/nvidia-{v}", sources)),
        Package("nvidia-kernel-common-570", r,
                alone("nvidia-kernel-common", Depends=f"nvidia-firmware-570-{v}", Recommends="nvidia-modprobe"),
                {"lib/modprobe.d/nvidia-graphics-drivers.conf": TEXTS.text("nvidia-graphics-drivers.conf"),
                 "etc/modprobe.d/nvidia-graphics-drivers-kms.conf": TEXTS.text("nvidia-graphics-drivers-kms.conf"),
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
                 "lib/systemd/system/nvidia-persistenced.service": TEXTS.text("nvidia-persistenced.service")},
                TEXTS.scripts("nvidia-compute-utils-570")),
        Package("xserver-xorg-video-nvidia-570", r,
                alone("xorg-driver-binary, nvidia-driver-binary", Depends=f"libnvidia-cfg1-570 (= {r})"),
                {f"{LIB}/nvidia/xorg/nvidia_drv.so": libraries.built("libnvidia-glcore", v)}, section="non-free/x11"),
        Package("nvidia-driver-570-open", r,
                {"Depends": f"libnvidia-gl-570 (= {r}), {just('nvidia-dkms-570-open', v)}, {just('nvidia-kernel-common-570', v)}, "
                            f"nvidia-kernel-source-570-open (= {r}), {everything}",
                 "Recommends": "nvidia-settings"}),
        Package("nvidia-settings", r, {}, section="main/x11"),
        Package("nvidia-modprobe", r, {"Multi-Arch": "foreign"}, {"usr/bin/nvidia-modprobe": libraries.program("nvidia-modprobe", v)}),
    ]


@functools.cache
def linkable(module, v, kernel):
    """An object that holds no code, and what depmod, modinfo and p2pd read of the module that is linked of it."""
    about = {"license": "Dual MIT/GPL", "version": v, "srcversion": hashlib.sha256(f"{module} {v}".encode()).hexdigest()[:24].upper(),
             "depends": DEPENDS[module], "name": module.replace("-", "_"), "vermagic": f"{kernel} SMP preempt mod_unload modversions "}
    lines = [f"{key}={value}" for key, value in about.items()]
    if module == "nvidia":
        lines += [f"alias=pci:v000010DEd*sv*sd*bc03sc{kind}i00*" for kind in ("02", "00")]
    with tempfile.TemporaryDirectory(prefix="driver-world.") as folder:
        out = pathlib.Path(folder, "module.o")
        tree.run(["gcc", "-c", "-x", "assembler", "-o", out, "-"],
                 input="".join(['.section .modinfo,"a"\n', *(f'.asciz "{line}"\n' for line in lines)]).encode())
        return out.read_bytes()


def signature():
    """Signature appended to a signed module; no key made it."""
    content = b"stand-in for a signature"
    return content + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(content)) + b"~Module signature appended~\n"


def prebuilt_packages(release, kernel, v, own):
    """The packages with modules for one kernel, of version `own`, and the one that follows its series."""
    bits, modules = f"lib/modules/{kernel}/kernel/nvidia-570-open/bits", f"linux-modules-nvidia-570-open-{kernel}"
    objects, signed = f"linux-objects-nvidia-570-open-{kernel}", f"linux-signatures-nvidia-{kernel}"
    common = just("nvidia-kernel-common-570", v)

    def package(name, relations, files=None, scripts=None):
        return Package(name, own, relations, files or {}, scripts or {}, "restricted/kernel", source="linux-restricted-modules")
    return [
        package(modules, {"Depends": f"linux-image-{kernel} | linux-image-unsigned-{kernel}, {common}, {objects} (= {own}), {signed} (= {own})"},
                scripts=TEXTS.scripts("linux-modules-nvidia", kernel=kernel)),
        package(objects, {"Recommends": modules}, {f"{bits}/{module}.o": linkable(module, v, kernel) for module in DEPENDS}),
        package(signed, {}, {f"{bits}/{module}.ko.sig": signature() for module in DEPENDS}),
        package(f"linux-modules-nvidia-570-open-{release.series}",
                {"Depends": f"{modules} (= {own}), {common}", "Provides": f"nvidia-dkms-570-open (= {v}-{release.ending}), nvidia-prebuilt-kernel"}),
    ]


def packages(codename, versions, given):
    release, found = RELEASES[codename], []
    for v in versions:
        for package in kernel_packages(v, f"{v}-{release.ending}") + user_packages(v, f"{v}-{release.ending}", given):
            package.section = package.section.replace("non-free", "restricted")
            package.source = "" if package.name in ("nvidia-settings", "nvidia-modprobe") else "nvidia-graphics-drivers-570"
            found.append(package)
    for kernel, version in release.kernels.items():
        for build, v in enumerate([versions[0], *versions]):  # the first driver's are built twice
            found += prebuilt_packages(release, kernel, v, f"{version}+{build}" if build else version)
    return found
