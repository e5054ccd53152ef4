# SPDX-License-Identifier: MIT
"""NVIDIA-Linux-x86_64-VERSION.run: a shell header and a compressed archive, laid out as on NVIDIA's hosts; and drop-ins for
/etc/p2pd/catalogue.d with the pins of runfiles and commits (config/schema/catalogue.schema.json)."""

import pathlib

import yaml

from . import libraries, source, tree

HERE = pathlib.Path(__file__).resolve().parents[1] / "runfile"
TESLA = {"550.54.15", "550.127.08", "570.123.11", "570.133.11", "570.148.11"}  # below tesla/, as some of NVIDIA's are
LIBRARIES = {"libcuda": "CUDA", "libcudadebugger": "CUDA", "libnvidia-ptxjitcompiler": "CUDA", "libnvcuvid": "CUDA",
             "libnvidia-encode": "CUDA", "libnvidia-ml": "UTILITY", "libnvidia-cfg": "GL", "libGLX_nvidia": "GL",
             "libEGL_nvidia": "GL", "libnvidia-glcore": "GL", "libnvidia-eglcore": "GL", "libvdpau_nvidia": "GL", "libnvidia-fbc": "GL"}


# drop-in -> ending of the branch. Only the first is for good; the others take its place to see p2pd refuse. "keep" is like the first,
# and has the versions of the distribution's packages, too
DROP_INS = {"driver-world": "-p2p", "asks": "-p2p-asks", "fails-late": "-p2p-fails-late", "moved": "-p2p-moved"}
PARTS = ("options.sh", "uninstall.sh", "install.sh")


def installer(version):
    """nvidia-installer as one file, because nvidia-uninstall is a link to what it lays down."""
    return ("program", "#!/bin/sh\n" + "\n".join((HERE / part).read_text() for part in PARTS).replace("@VERSION@", version))


def path(version):
    folder = "tesla" if version in TESLA else "XFree86/Linux-x86_64"
    return f"/{folder}/{version}/NVIDIA-Linux-x86_64-{version}.run"


def content(version, given):
    """Unpacked files, and the manifest's lines: file, mode, type, target of a link."""
    files, lines = {}, []

    def add(name, entry, kind):
        what, data = tree.split(entry)
        if what == "link":
            lines.append(f"{name} 0000 {kind} {data}")
            return
        files[name] = entry
        lines.append(f"{name} {'0755' if what == 'program' or '.so.' in name else '0644'} {kind}")
    for library, kind in LIBRARIES.items():
        for name, entry in libraries.library(library, version, given).items():
            add(name, entry, f"{kind}_{'SYMLINK' if tree.split(entry)[0] == 'link' else 'LIB'}")
    for name in ("nvidia-smi", "nvidia-persistenced", "nvidia-modprobe"):
        add(name, libraries.program(name, version), "UTILITY_BINARY")
    add("nvidia-installer", installer(version), "INSTALLER_BINARY")
    lines.append("nvidia-uninstall 0000 UTILITY_BIN_SYMLINK nvidia-installer")
    for name, entry in libraries.firmware(version).items():
        add(f"firmware/{name}", entry, "FIRMWARE")
    for name, entry in source.kernel_open(version, False).items():
        add(f"kernel-open/{name}", entry, "KERNEL_MODULE_SRC")
    add("kernel-open/dkms.conf", (HERE / "dkms.conf").read_text(), "DKMS_CONF")
    add("README.txt", f"NVIDIA driver {version} of the driver world: no part of it is NVIDIA's.\n", "DOCUMENTATION")
    return files, lines


def make(out, version, given):
    """Writes the runfile and its .sha256sum below `out`; returns the SHA-256 and the bytes."""
    files, lines = content(version, given)
    files[".manifest"] = f"NVIDIA Accelerated Graphics Driver for Linux-x86_64\n{version}\n---\n" + "\n".join(lines) + "\n"
    payload = tree.tar_gz(files)
    header = (HERE / "header").read_text()
    values = {"VERSION": version, "LINES": header.count("\n"), "SIZE": len(payload), "SHA256": tree.sha256(payload)}
    for key, value in values.items():
        header = header.replace(f"@{key}@", str(value))
    data = header.encode() + payload
    place = out / path(version)[1:]
    tree.write(place.parent, {place.name: ("program", data), f"{place.name}.sha256sum": f"{tree.sha256(data)}  {place.name}\n"})
    return tree.sha256(data), len(data)


# ---- the catalogue ---------------------------------------------------------------------------------------------------

def release_row(version, commit, made):
    digest, size = made
    return {"commit": commit, "known": "verified", "cuda": "12.8", "kernel_min": "5.13", "compat": ["pci-resize-exclude-bars"],
            "runfile": {"path": path(version), "sha256": digest, "bytes": size, "known": "verified"}}


def patch_row(repository, branch, version, commit):
    return {
        "repository": repository, "branch": branch, "commit": commit, "known": "verified", "base": version,
        "architectures": {"Ampere": "reported", "Ada": "reported", "Blackwell": "reported"},
        "module_options": {} if branch.endswith("-asks") else {"NVreg_EnableResizableBar": 1}, "registry_dwords_forbidden": {"RMForceP2PType": 1},
    }


def drop_ins(seen_at, pins, runfiles, distributed, new):
    """File name to text; `seen_at` is where the world lies for p2pd; the others: version to SHA-256 and bytes."""
    repository, found = f"file://{seen_at}/git/open-gpu-kernel-modules.git", {}
    rows = [(name, ending, runfiles) for name, ending in DROP_INS.items()] + [("keep", "-p2p", runfiles | distributed), ("branches", "-p2p", runfiles | distributed | new)]
    for name, ending, runfiles in rows:
        table = {
            "schema": "p2pd.catalogue/2", "runfile_hosts": [f"file://{seen_at}/http"], "releases_at": repository,
            "releases": {version: release_row(version, pins[version], made) for version, made in runfiles.items()},
            "patches": {f"driver-world/{version}{ending}": patch_row(repository, version + ending, version, pins[version + ending]) for version in runfiles},
        }
        found[f"{name}.yaml"] = "# Made by tests/sim/driver_world.\n" + yaml.safe_dump(table, sort_keys=False, width=250)
    return found
