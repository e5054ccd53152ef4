# SPDX-License-Identifier: MIT
"""The driver's user space: ELF shared objects with the real names and sonames, and small programs."""

import functools
import pathlib
import tempfile

from . import tree

USERSPACE = pathlib.Path(__file__).resolve().parents[1] / "userspace"

# library -> soname; as NVIDIA's 570 has them. "" is NAME.so.VERSION: libraries that only others of the driver load
SONAMES = {
    "libcuda": "libcuda.so.1", "libnvidia-ml": "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-cfg": "libnvidia-cfg.so.1", "libGLX_nvidia": "libGLX_nvidia.so.0", "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libvdpau_nvidia": "libvdpau_nvidia.so.1", "libnvidia-glcore": "", "libnvidia-eglcore": "", "libnvidia-gpucomp": "",
    "libnvcuvid": "libnvcuvid.so.1", "libnvidia-encode": "libnvidia-encode.so.1", "libnvidia-fbc": "libnvidia-fbc.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libcudnn": "libcudnn.so.9", "libnvidia-container": "libnvidia-container.so.1",  # neighbours
}
HAS_PLAIN_LINK = {"libcuda", "libnvcuvid"}  # libNAME.so, for linking programs
FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin")


@functools.cache
def built(name, version):
    """The bytes of the stub NAME.so.VERSION."""
    macro = name.upper().replace("-", "_")
    with tempfile.TemporaryDirectory(prefix="driver-world.") as folder:
        out = pathlib.Path(folder, "library.so")
        tree.run(["gcc", "-shared", "-fPIC", "-O1", "-s", "-nostdlib", "-Wl,--build-id=none", f"-D{macro}",
                  f'-DVERSION="{version}"', f"-Wl,-soname,{SONAMES[name] or f'{name}.so.{version}'}", "-o", out, "stub.c"], cwd=USERSPACE)
        return out.read_bytes()


def library(name, version, given=None):
    """A library and the links to it, as a table of names in its folder; `given` has files to take instead of stubs, by name."""
    file, soname = f"{name}.so.{version}", SONAMES[name]
    files = {file: pathlib.Path(given[name]).read_bytes() if name in (given or {}) else built(name, version)}
    if soname:
        files[soname] = ("link", file)
    if name in HAS_PLAIN_LINK:
        files[f"{name}.so"] = ("link", soname)
    return files


def program(name, version):
    return ("program", (USERSPACE / name).read_text().replace("@VERSION@", version))


def firmware(version):
    """Stand-ins: a file of the right name that says what it is; the real ones are 30 to 70 MB."""
    return {name: f"GSP firmware {name} {version}, stand-in\n" for name in FIRMWARE}
