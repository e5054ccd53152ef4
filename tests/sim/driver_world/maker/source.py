# SPDX-License-Identifier: MIT
"""The module source: its variants, what of it is compiled beforehand, and the git repository with their branches."""

import functools
import pathlib
import shutil
import tempfile
import time

from . import tree

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "open-gpu-kernel-modules"
RESIZE = "\terror = pci_resize_resource(dev, NV_BAR1, size);\n"
NO_OPTION = "if (!sizes || !nv_resizable_bar() || "


def replaced(files, name, old, new):
    text = files[name].decode()
    if text.count(old) != 1:
        raise SystemExit(f"make: {name} holds {text.count(old)} of {old!r}; expected one")
    return {**files, name: text.replace(old, new).encode()}


def stock(version):
    """As NVIDIA releases it: pci_resize_resource() with three arguments, no override."""
    return {name: entry if isinstance(entry, tuple) else entry.replace(b"@VERSION@", version.encode())
            for name, entry in tree.read(TEMPLATE).items()}


def p2p_asks(version):
    """As some forks patch it: read and write over BAR1 forced; BAR1 is resized where the option of NVIDIA's module asks for it."""
    return replaced(stock(version), "src/nvidia/src/bar1_p2p.c", "P2P_OVERRIDE 0x00", "P2P_OVERRIDE 0x11")


def p2p(version):
    """As others do: BAR1 is resized without being asked, too."""
    return replaced(p2p_asks(version), "kernel-open/nvidia/nv-pci.c", NO_OPTION, "if (!sizes || ")


def fails_late(version):
    """An error in the object that is compiled after all others (kernel-open/Kbuild)."""
    return replaced(p2p(version), "kernel-open/nvidia-peermem/nvidia-peermem.c", "\treturn nvidia_p2p_get_pages",
                    "\t((struct module *)THIS_MODULE)->output_poll_changed = 0;\n\treturn nvidia_p2p_get_pages")


def moved(version):
    """Another commit than the one that was pinned."""
    files = p2p(version)
    return replaced(files, "src/nvidia/src/bar1_p2p.c", "0x11", "0x111")


def packaged(version):
    """As a distribution keeps it fit for its kernels: it knows the fourth argument."""
    files = replaced(stock(version), "kernel-open/nvidia/nv-pci.c", RESIZE,
                     "#if defined(NV_PCI_RESIZE_RESOURCE_HAS_EXCLUDE_BARS_ARG)\n"
                     "\terror = pci_resize_resource(dev, NV_BAR1, size, 0);\n#else\n" + RESIZE + "#endif\n")
    return replaced(files, "kernel-open/Kbuild", "proc_create_single_data_present",
                    "proc_create_single_data_present pci_resize_resource_has_exclude_bars_arg")


@functools.cache
def kernel_open(version, is_packaged):
    """kernel-open/ with the part that knows no kernel compiled, as in the runfile and in DKMS packages."""
    files = packaged(version) if is_packaged else stock(version)
    with tempfile.TemporaryDirectory(prefix="driver-world.") as name:
        folder = pathlib.Path(name)
        tree.write(folder, files)
        built = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(tree.EPOCH))
        told = f"NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@host)  {built}"
        for module, part in (("nvidia", "nv-kernel"), ("nvidia-modeset", "nv-modeset-kernel")):
            tree.run(["make", "-C", folder / "src" / module, "TARGET_ARCH=x86_64", f"ID={told}"])
            shutil.copy(folder / "src" / module / f"_out/Linux_x86_64/{part}.o", folder / "kernel-open" / module / f"{part}.o_binary")
        return tree.read(folder / "kernel-open")


BRANCHES = {"": stock, "-p2p": p2p, "-p2p-asks": p2p_asks, "-p2p-fails-late": fails_late, "-p2p-moved": moved}


def commit(work, message, files):
    """A commit of a table in place of what was there; its hash depends on nothing but content."""
    for path in work.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    tree.write(work, files)
    who = {"GIT_AUTHOR_NAME": "driver world", "GIT_AUTHOR_EMAIL": "driver-world@invalid", "GIT_COMMITTER_NAME": "driver world",
           "GIT_COMMITTER_EMAIL": "driver-world@invalid", "GIT_AUTHOR_DATE": f"{tree.EPOCH} +0000",
           "GIT_COMMITTER_DATE": f"{tree.EPOCH} +0000", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(work)}
    tree.run(["git", "-C", work, "add", "--all", "--force"], env=who)
    tree.run(["git", "-C", work, "-c", "core.autocrlf=false", "commit", "--quiet", "-m", message], env=who)
    return tree.run(["git", "-C", work, "rev-parse", "HEAD"]).decode().strip()


def repository(bare, versions):
    """Makes the repository; returns branch to the commit that a catalogue would pin. A moved branch has left that commit. The release
    that branches begin with has a tag, as in NVIDIA's, beside its branch."""
    pins = {}
    tree.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", bare])
    # a pinned commit is fetched by its hash, as the forges allow
    tree.run(["git", "-C", bare, "config", "uploadpack.allowAnySHA1InWant", "true"])
    with tempfile.TemporaryDirectory(prefix="driver-world.") as name:
        work = pathlib.Path(name)
        tree.run(["git", "init", "--quiet", "--initial-branch=main", work])
        for version in versions:
            tree.run(["git", "-C", work, "checkout", "--quiet", "--orphan", f"base-{version}"])
            base = commit(work, version, stock(version))
            for suffix, variant in BRANCHES.items():
                branch = version + suffix
                tree.run(["git", "-C", work, "checkout", "--quiet", "-b", branch, base])
                pins[branch] = base if variant is stock else commit(work, branch, variant(version))
                if variant is moved:
                    # pinned is what is in no branch, and so never sent
                    tree.run(["git", "-C", work, "checkout", "--quiet", "--detach", base])
                    pins[branch] = commit(work, f"{branch}, as pinned", p2p(version))
                tree.run(["git", "-C", work, "push", "--quiet", bare, branch])
            tree.run(["git", "-C", work, "push", "--quiet", bare, f"{base}:refs/tags/{version}"])
        tree.run(["git", "-C", bare, "symbolic-ref", "HEAD", f"refs/heads/{versions[0]}"])
    return pins
