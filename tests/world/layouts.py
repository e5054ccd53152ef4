# SPDX-License-Identifier: MIT
"""Machines that keep the driver's packages, in the layouts of distributions: names of packages and of modules, paths, compression.

LAYOUTS are on the two trees that `tree` makes. Those of Ubuntu are on Debian 12, whose apt, dpkg, dkms and kmod they use; their kernels
are the tree's kernel under Ubuntu's names.
"""
import dataclasses
import re
import shutil
import subprocess

from actions_test import KEPT, OFFERED, put_cards, with_keep
from archive import Archive
from world_tree import Tree, need

OLD = KEPT["entry"].removeprefix("driver-world/").removesuffix("-p2p")  # version of the installed packages
WORLD_LIST = "/etc/apt/sources.list.d/driver-world.list"
WITHOUT_DEBIAN = ("-o", "Dir::Etc::sourcelist=/dev/null")  # its archive is not needed, and may be out of reach
DRIVER_SOURCES = re.compile("nvidia-(graphics-drivers|open-gpu-kernel-modules|support|persistenced|settings|modprobe)|glx-alternatives|linux-restricted-modules")
PACKERS = {".ko": None, ".ko.xz": ["xz", "--check=crc32"], ".ko.zst": ["zstd", "--quiet", "--rm"]}
OS_RELEASE = 'ID=ubuntu\nID_LIKE=debian\nNAME="Ubuntu"\nPRETTY_NAME="Ubuntu {0}"\nVERSION_ID="{0}"\nVERSION_CODENAME={1}\nUBUNTU_CODENAME={1}\n'


@dataclasses.dataclass(frozen=True)
class Layout:
    """Properties of a machine's driver that depend on the distribution."""
    name: str
    root: str          # name of the tree that it is based on
    make: object       # function that prepares the tree, called with it and the layout
    origin: str        # origin of its archives, as in unattended-upgrades: "Debian:trixie"
    nvidia: str        # name of nvidia.ko
    place: str         # directory of the packages' modules, below /lib/modules/RELEASE
    suffix: str        # suffix of their file names
    modules: str       # the package that contains them
    kernels: tuple     # kernels in an archive: on Ubuntu the running one, and a newer one
    another: str = ""  # the package of another branch's driver, where it has a name of its own

    def module(self, name):
        return self.nvidia + name.removeprefix("nvidia")

    @property
    def prebuilt(self):
        return self.place.startswith("kernel/")

    @property
    def next_branch(self):
        """True if packages of its driver may become empty, and need those of another branch, of which no modules are prebuilt."""
        return self.another and not self.prebuilt


def apt_get(tree, *words, sources=WITHOUT_DEBIAN, check=True):
    return tree.run("apt-get", "--quiet", "--yes", *sources, *words, check=check)


def driver_packages(tree):
    """Names of the driver's packages that are installed, or of which configuration is left."""
    rows = [line.split("\t") for line in tree.run("dpkg-query", "-W", "-f", "${source:Package}\t${Package}\n").splitlines()]
    return [name for source, name in rows if DRIVER_SOURCES.match(source)]


# ---- kernels

def with_modules(folder, original, suffix):
    """Creates below `folder` what depmod needs, and two modules of a kernel, compressed for `suffix`."""
    place = folder / "kernel/drivers/net"
    place.mkdir(parents=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(original / name, folder / name)
    for file in sorted(original.glob("kernel/drivers/net/[dg]*.ko*"))[:2]:
        plain = place / (file.name.partition(".ko")[0] + ".ko")
        content = file.read_bytes()
        plain.write_bytes(content if file.suffix == ".ko" else subprocess.run(["xz", "-dc"], input=content, check=True, stdout=subprocess.PIPE).stdout)
        if PACKERS[suffix]:
            subprocess.run([*PACKERS[suffix], plain], check=True)


def renamed(folder, original, release):
    """Replaces the release in text files below `folder`."""
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if original.encode() in content and b"\0" not in content:
            path.write_bytes(content.replace(original.encode(), release.encode()))


def kernel_packages(tree, release, suffix):
    """Folders of the packages linux-image-RELEASE and linux-headers-RELEASE: files, two modules and maintainer scripts of the kernel of
    `tree`, by another name."""
    original, made = tree.kernel, []
    for kind, files in (("image", ["boot/vmlinuz-", "boot/config-"]), ("headers", ["usr/src/linux-headers-"])):
        package = tree.work / f"linux-{kind}-{release}"
        modules = package / f"usr/lib/modules/{release}"
        modules.mkdir(parents=True)
        for file in files:
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", tree.file(file + original), package / (file + release)], check=True)
        if kind == "image":
            with_modules(modules, tree.file(f"/usr/lib/modules/{original}"), suffix)
        else:
            (modules / "build").symlink_to(f"/usr/src/linux-headers-{release}")
            (modules / "source").symlink_to("/usr/src/" + tree.file(f"/usr/lib/modules/{original}/source").readlink().name)
        control = package / "DEBIAN"
        control.mkdir()
        (control / "control").write_text(f"Package: {package.name}\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@example.com>\nDescription: made\n")
        for script in ("preinst", "postinst", "prerm", "postrm"):
            source = tree.file(f"/var/lib/dpkg/info/linux-{kind}-{original}.{script}")
            if source.exists():
                shutil.copy(source, control / script)
        renamed(package, original, release)
        made.append(package)
    return made


def with_kernels(tree, origin, suffix, *releases):
    """Makes an archive of kernels with the origin of the driver's archive."""
    archive = Archive(tree)
    for release in releases:
        for package in kernel_packages(tree, release, suffix):
            archive.adds(package)
    name, _, suite = origin.partition(":")
    archive.is_of(Origin=name, Suite=suite)
    archive.update()


# ---- distributions

def debian(tree, layout):
    with_keep(tree)
    with_kernels(tree, layout.origin, layout.suffix, layout.kernels[-1])


def ubuntu(number, *packages, suffix, prebuilt=""):
    """`number`: its release; `packages`: what is installed beside the driver; `suffix`: of the files of the kernel's modules; `prebuilt`:
    version of the packages with modules of the kernel that runs."""
    def make(tree, layout):
        before, codename, kernel = tree.kernel, layout.origin.partition(":")[2], layout.kernels[0]
        apt_get(tree, "purge", *driver_packages(tree))
        tree.file("/etc/os-release").unlink()
        tree.file("/etc/os-release").write_text(OS_RELEASE.format(number, codename))
        tree.file(WORLD_LIST).write_text("deb [trusted=yes] file:///srv/driver-world/apt/cuda ./\n"
                                         f"deb [trusted=yes] file:///srv/driver-world/apt/ubuntu {codename} main restricted\n")
        with_kernels(tree, layout.origin, suffix, *layout.kernels)
        apt_get(tree, "-o", "APT::Get::List-Cleanup=0", "update")
        apt_get(tree, "install", f"linux-image-{kernel}", f"linux-headers-{kernel}")
        tree.runs_kernel(kernel)
        apt_get(tree, "purge", "linux-image-amd64", "linux-headers-amd64", f"linux-image-{before}", f"linux-headers-{before}")
        left = tree.run("apt-mark", "showauto", "linux-headers-*", "linux-kbuild-*", "linux-compiler-*").split()
        tree.run("apt-mark", "manual", *left)  # the headers are made of them
        older = tree.file("/etc/apt/preferences.d/older")
        older.write_text(f"Package: *nvidia*-570* nvidia-settings nvidia-modprobe\nPin: version {OLD}-*\nPin-Priority: 1001\n\n"
                         f"Package: linux-*nvidia*\nPin: version {prebuilt or '*'}\nPin-Priority: 1001\n")
        apt_get(tree, "install", "nvidia-driver-570-open", *packages)
        older.unlink()
        with_keep(tree)
    return make


def with_empty_packages(tree, layout):
    """Adds the archive of updates, and builds of the branch whose packages it brings."""
    with tree.file(WORLD_LIST).open("a") as file:
        file.write(f"deb [trusted=yes] file:///srv/driver-world/apt/ubuntu {layout.origin.partition(':')[2]}-updates main restricted\n")
    apt_get(tree, "-o", "APT::Get::List-Cleanup=0", "update")
    tree.run("cp", "/srv/driver-world/catalogue/branches.yaml", "/etc/p2pd/catalogue.d/driver-world.yaml")


JAMMY, NOBLE = ("5.15.0-140-generic", "5.15.0-142-generic"), ("6.14.0-24-generic", "6.17.0-8-generic")
SERIES, PREBUILT, NEWER_PREBUILT = "linux-modules-nvidia-570-open-generic-hwe-24.04", "6.14.0-24.24~24.04.3", "6.17.0-8.8~24.04.3"
ANOTHER = "nvidia-driver-595-open"
DEBIAN_DKMS, DKMS, OF_KERNEL = ("nvidia-current-open", "updates/dkms"), ("nvidia", "updates/dkms"), ("nvidia", "kernel/nvidia-570-open")
LAYOUTS = [
    Layout("bookworm", "root", debian, "Debian:bookworm", *DEBIAN_DKMS, ".ko", "nvidia-kernel-open-dkms", ("6.1.0-999-amd64",)),
    Layout("trixie", "trixie", debian, "Debian:trixie", *DEBIAN_DKMS, ".ko.xz", "nvidia-open-kernel-dkms", ("6.12.999+deb13-amd64",)),
    Layout("jammy", "root", ubuntu("22.04", suffix=".ko"), "Ubuntu:jammy", *DKMS, ".ko", "nvidia-dkms-570-open", JAMMY, ANOTHER),
    Layout("noble", "root", ubuntu("24.04", suffix=".ko.zst"), "Ubuntu:noble", *DKMS, ".ko.zst", "nvidia-dkms-570-open", NOBLE, ANOTHER),
    Layout("noble-prebuilt", "root", ubuntu("24.04", SERIES, suffix=".ko.zst", prebuilt=PREBUILT), "Ubuntu:noble", *OF_KERNEL, ".ko",
           f"linux-modules-nvidia-570-open-{NOBLE[0]}", NOBLE, ANOTHER),
]


ANOTHER_BRANCH = "another branch"
# rows as in actions_test.py, on the trees of a Machine
ROWS = [("driver-pins", KEPT, "kept", ()), ("driver-modules", KEPT, "built", ()),
        ("driver-update", {"required": True}, "backed up", ("packages", "apt")),
        ("driver-update", {"required": True}, ANOTHER_BRANCH, ("packages", "apt"))]


def rows_of(layout):
    return [row for row in ROWS if row[2] != ANOTHER_BRANCH or layout.next_branch]


class Machine:
    """The trees of a layout: `kept` has the driver's packages, `built` staged files for their version, `backed up` a backup of them,
    ANOTHER_BRANCH also an archive in which they are empty and need those of a newer branch."""
    STAGED = {"built": [(name, {"entry": KEPT["entry"]}) for name in ("driver-source", "driver-build")], "backed up": [("way-back", OFFERED)],
              ANOTHER_BRANCH: [("way-back", OFFERED)]}

    def __init__(self, work, root, layout):
        self.work, self.layout = work, layout
        self.kept = Tree(work, f"{layout.name}-kept", root if layout.root == "root" else root.parent / layout.root)
        layout.make(self.kept, layout)
        self.made = {"kept": self.kept}
        self.built = self.ground("built")

    def ground(self, name):
        if name not in self.made:
            tree = self.made[name] = self.tree(name.replace(" ", "-"))
            if name == ANOTHER_BRANCH:
                with_empty_packages(tree, self.layout)
            if name == "backed up" and self.layout.prebuilt:  # the newer driver's modules need the newer kernel, which is no driver package
                apt_get(tree, "install", *(f"linux-{kind}-{self.layout.kernels[-1]}" for kind in ("image", "headers")))
            status, told = tree.p2pctl("apply", tree.plan(self.STAGED[name]), "--state", f"/mnt/{tree.name}.state", live=True)
            need(status == 0 and told["result"] == "done", f"{name}: {status} {told}")
            if name in ("backed up", ANOTHER_BRANCH):
                put_cards(tree)  # the check that a driver fits reads the cards
        return self.made[name]

    def tree(self, name, on=None, since=None):
        return Tree(self.work, f"{self.layout.name}-{name}", on or self.kept, since)

    def close(self):
        for tree in reversed(self.made.values()):
            tree.close()
