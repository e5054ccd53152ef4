# SPDX-License-Identifier: MIT
"""The driver for Ubuntu 22.04 and 24.04, a flavour for each branch: names, relations and places of nvidia-graphics-drivers-570 as its
packaging (debian/templates/control.in) has them, and prebuilt modules in the packages that linux-restricted-modules makes.

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
                     {"6.14.0-24-generic": "6.14.0-24.24~24.04.3", "6.17.0-8-generic": "6.17.0-8.8~24.04.3"}),
}
DEPENDS = {"nvidia": "", "nvidia-modeset": "nvidia", "nvidia-drm": "nvidia-modeset", "nvidia-uvm": "nvidia", "nvidia-peermem": "nvidia"}


def alone(provides, **relations):
    """Relations of a package of which one flavour can be installed."""
    return {"Provides": provides, "Conflicts": provides, "Replaces": provides, **relations}


def flavour(v):
    """Branch of the driver, as names of packages have it: "570"."""
    return v.partition(".")[0]


def just(package, v):
    """A relation to any package of one version of the driver."""
    return f"{package} (<= {v}-1), {package} (>= {v})"


def kernel_packages(v, r):
    f = flavour(v)
    sources = {**source.kernel_open(v, True), "dkms.conf": TEXTS.text("dkms.conf", version=v)}
    return [
        Package(f"nvidia-dkms-{f}-open", r,
                alone("nvidia-dkms-kernel", **{"Multi-Arch": "foreign", "Depends":
                      f"dkms, {just(f'nvidia-kernel-source-{f}-open', v)}, {just(f'nvidia-kernel-common-{f}', v)}"}),
                scripts=TEXTS.scripts("nvidia-dkms", version=v)),
        Package(f"nvidia-kernel-source-{f}-open", r, alone("nvidia-kernel-source", **{"Multi-Arch": "foreign"}),
                tree.below(f"usr/src/nvidia-{v}", sources)),
        Package(f"nvidia-kernel-common-{f}", r,
                alone("nvidia-kernel-common", Depends=f"nvidia-firmware-{f}-{v}", Recommends="nvidia-modprobe"),
                {"lib/modprobe.d/nvidia-graphics-drivers.conf": TEXTS.text("nvidia-graphics-drivers.conf"),
                 "etc/modprobe.d/nvidia-graphics-drivers-kms.conf": TEXTS.text("nvidia-graphics-drivers-kms.conf", flavour=f),
                 "lib/udev/rules.d/71-nvidia.rules": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", RUN+="/sbin/modprobe nvidia-uvm"\n'}),
        Package(f"nvidia-firmware-{f}-{v}", r, {"Breaks": f"nvidia-firmware-{f}-server-{v}", "Replaces": f"nvidia-firmware-{f}-server-{v}"},
                tree.below(f"lib/firmware/nvidia/{v}", libraries.firmware(v))),
    ]


def user_packages(v, r, given):
    f = flavour(v)

    def lib(name, names, **relations):
        return Package(f"{name}-{f}", r, alone(name, **{"Multi-Arch": "same", **relations}), debian.libs(names, v, given, LIB))
    everything = ", ".join(f"{name} (= {r})" for name in (
        f"libnvidia-compute-{f}", f"libnvidia-extra-{f}", f"nvidia-compute-utils-{f}", f"libnvidia-decode-{f}", f"libnvidia-encode-{f}",
        f"nvidia-utils-{f}", f"xserver-xorg-video-nvidia-{f}", f"libnvidia-cfg1-{f}", f"libnvidia-fbc1-{f}"))
    return [
        Package(f"libnvidia-compute-{f}", r,
                {"Multi-Arch": "same", "Conflicts": f"libnvidia-compute, {CUDA}", "Replaces": "libnvidia-compute",
                 "Provides": f"libnvidia-compute, libnvidia-ml.so.1 (= {v}), libnvidia-ml1 (= {v}), {CUDA}, libcuda.so.1 (= {v}), libcuda1 (= {v})"},
                debian.libs(["libcuda", "libcudadebugger", "libnvidia-ml", "libnvidia-ptxjitcompiler"], v, given, LIB)),
        lib("libnvidia-gl", ["libGLX_nvidia", "libEGL_nvidia", "libnvidia-glcore", "libnvidia-eglcore"],
            Depends=f"libnvidia-common-{f}", Provides="libnvidia-gl, libglx-vendor, libegl-vendor"),
        lib("libnvidia-common", []),
        lib("libnvidia-extra", []),
        lib("libnvidia-cfg1", ["libnvidia-cfg"], Provides="libnvidia-cfg1-any", Conflicts="libnvidia-cfg1-any", Replaces="libnvidia-cfg1-any"),
        lib("libnvidia-decode", ["libnvcuvid"], Depends=f"libnvidia-compute-{f} (= {r})"),
        lib("libnvidia-encode", ["libnvidia-encode"]),
        lib("libnvidia-fbc1", ["libnvidia-fbc"]),
        Package(f"nvidia-utils-{f}", r, alone("nvidia-utils, nvidia-smi", Suggests=f"nvidia-driver-{f}"),
                {"usr/bin/nvidia-smi": libraries.program("nvidia-smi", v)}),
        Package(f"nvidia-compute-utils-{f}", r,
                alone("nvidia-compute-utils, nvidia-persistenced", Depends=f"libnvidia-compute-{f}, adduser"),
                {"usr/bin/nvidia-persistenced": libraries.program("nvidia-persistenced", v),
                 "lib/systemd/system/nvidia-persistenced.service": TEXTS.text("nvidia-persistenced.service")},
                TEXTS.scripts("nvidia-compute-utils")),
        Package(f"xserver-xorg-video-nvidia-{f}", r,
                alone("xorg-driver-binary, nvidia-driver-binary", Depends=f"libnvidia-cfg1-{f} (= {r})"),
                {f"{LIB}/nvidia/xorg/nvidia_drv.so": libraries.built("libnvidia-glcore", v)}, section="non-free/x11"),
        Package(f"nvidia-driver-{f}-open", r,
                {"Depends": f"libnvidia-gl-{f} (= {r}), {just(f'nvidia-dkms-{f}-open', v)}, {just(f'nvidia-kernel-common-{f}', v)}, "
                            f"nvidia-kernel-source-{f}-open (= {r}), {everything}",
                 "Recommends": "nvidia-settings"}),
    ]


def tools(v, r):
    return [
        Package("nvidia-settings", r, {}, section="main/x11"),
        Package("nvidia-modprobe", r, {"Multi-Arch": "foreign"}, {"usr/bin/nvidia-modprobe": libraries.program("nvidia-modprobe", v)},
                section="restricted/libs"),
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
    f = flavour(v)
    bits, modules = f"lib/modules/{kernel}/kernel/nvidia-{f}-open/bits", f"linux-modules-nvidia-{f}-open-{kernel}"
    objects, signed = f"linux-objects-nvidia-{f}-open-{kernel}", f"linux-signatures-nvidia-{kernel}"
    common = just(f"nvidia-kernel-common-{f}", v)

    def package(name, relations, files=None, scripts=None):
        return Package(name, own, relations, files or {}, scripts or {}, "restricted/kernel", source="linux-restricted-modules")
    return [
        package(modules, {"Depends": f"linux-image-{kernel} | linux-image-unsigned-{kernel}, {common}, {objects} (= {own}), {signed} (= {own})"},
                scripts=TEXTS.scripts("linux-modules-nvidia", kernel=kernel, flavour=f)),
        package(objects, {"Recommends": modules}, {f"{bits}/{module}.o": linkable(module, v, kernel) for module in DEPENDS}),
        package(signed, {}, {f"{bits}/{module}.ko.sig": signature() for module in DEPENDS}),
        package(f"linux-modules-nvidia-{f}-open-{release.series}",
                {"Depends": f"{modules} (= {own}), {common}", "Provides": f"nvidia-dkms-{f}-open (= {v}-{release.ending}), nvidia-prebuilt-kernel"}),
    ]


def empty_packages(codename, v, another):
    """Those of an old branch that only need another's, as Ubuntu's 570.211.01-0ubuntu1.24.04.1 need 580's. Firmware has none. Each has its
    documentation: without a file of its own, dpkg would let it disappear once another package has its last one."""
    r, old, new = f"{v}-{RELEASES[codename].ending.replace('0ubuntu0', '0ubuntu1')}", flavour(v), flavour(another)
    return [Package(package.name, r, {"Multi-Arch": package.relations.get("Multi-Arch", ""), "Depends": package.name.replace(f"-{old}", f"-{new}")},
                    {f"usr/share/doc/{package.name}/copyright": "Made for tests.\n"},
                    section=package.section.replace("non-free", "restricted"), source=f"nvidia-graphics-drivers-{old}")
            for package in kernel_packages(v, r) + user_packages(v, r, {}) if not package.name.endswith(v)]


def packages(codename, versions, given):
    """Modules for kernels, nvidia-settings and nvidia-modprobe are of the first version's flavour only."""
    release, found, first = RELEASES[codename], [], [v for v in versions if flavour(v) == flavour(versions[0])]
    for v in versions:
        r = f"{v}-{release.ending}"
        for package in kernel_packages(v, r) + user_packages(v, r, given):
            package.section = package.section.replace("non-free", "restricted")
            package.source = f"nvidia-graphics-drivers-{flavour(v)}"
            found.append(package)
        if v in first:
            found += tools(v, r)
    for kernel, version in release.kernels.items():
        for build, v in enumerate([first[0], *first]):  # the first driver's are built twice
            found += prebuilt_packages(release, kernel, v, f"{version}+{build}" if build else version)
    return found
