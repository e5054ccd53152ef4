# SPDX-License-Identifier: MIT
"""Packages made for one test in a Tree (world_tree.py): an apt archive of them, and a kernel package."""
import hashlib
import shutil
import subprocess


class Archive:
    """An additional apt archive in a tree."""
    FOLDER, SOURCE = "/srv/archive", "/etc/apt/sources.list.d/archive.list"
    PATHS = (FOLDER, SOURCE)

    def __init__(self, tree):
        self.tree, self.folder = tree, tree.file(self.FOLDER)
        self.folder.mkdir()
        self.at(f"file://{self.FOLDER}")

    def at(self, url):
        self.tree.file(self.SOURCE).write_text(f"deb [trusted=yes] {url} ./\n")

    def lists(self, fields):
        """Adds a package to apt's list; without a Filename it cannot be downloaded."""
        fields = {"Architecture": "amd64", "Version": "99.9-1", "Maintainer": "x <x@example.com>", "Filename": "./none.deb", "Size": "1",
                  "SHA256": "0" * 64, "Description": "x", **fields}
        with (self.folder / "Packages").open("a") as file:
            file.write("\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()))

    def holds(self, name, files, **fields):
        """Adds a package with these files, path to text, all executable."""
        version = fields.get("Version", "99.9-1")
        package = self.tree.work / f"{name}_{version}"
        for path, text in {**files, "DEBIAN/control": "".join(f"{key}: {value}\n" for key, value in {
                "Package": name, "Version": "99.9-1", "Architecture": "amd64", "Maintainer": "x <x@example.com>", "Description": "x",
                **fields}.items())}.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text(text)
            (package / path).chmod(0o755)
        self.adds(package)

    def adds(self, package):
        """Adds a package from a folder, as dpkg-deb takes it."""
        fields = dict(line.split(": ", 1) for line in (package / "DEBIAN/control").read_text().splitlines())
        out = self.folder / f"{fields['Package']}_{fields['Version']}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", package, out], check=True, stdout=subprocess.DEVNULL)
        data = out.read_bytes()
        self.lists({**fields, "Filename": f"./{out.name}", "Size": len(data), "SHA256": hashlib.sha256(data).hexdigest()})

    def forgets(self):
        """Removes all packages; apt's lists still name them."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def is_of(self, **fields):
        """Writes a Release file with these fields, for the packages so far."""
        data = (self.folder / "Packages").read_bytes()
        (self.folder / "Release").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()) +
                                             f"SHA256:\n {hashlib.sha256(data).hexdigest()} {len(data)} Packages\n")

    def update(self):
        self.tree.run("apt-get", "update", "-o", f"Dir::Etc::sourcelist={self.SOURCE}", "-o", "Dir::Etc::sourceparts=/dev/null", "-o",
                      "APT::Get::List-Cleanup=0")


def kernel_package(tree, release, makefile):
    """A kernel package of `release` as Debian's are: its scripts run the hooks in /etc/kernel. `makefile`: text of its build folder's,
    or the folder of Debian's headers of the tree's own kernel, to copy."""
    package = tree.work / f"linux-image-{release}"
    build = package / f"usr/lib/modules/{release}/build"
    if isinstance(makefile, str):
        (build / "include").mkdir(parents=True)
        (build / "Makefile").write_text(makefile)
        (build / ".config").write_text('CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n')
    else:
        headers, own = makefile.with_name(f"linux-headers-{release}").relative_to(tree.path), makefile.name.removeprefix("linux-headers-")
        shutil.copytree(makefile, package / headers, symlinks=True)
        for name in (".kernelvariables", "include/generated/utsrelease.h"):
            (package / headers / name).write_text((package / headers / name).read_text().replace(own, release))
        build.parent.mkdir(parents=True)
        build.symlink_to("/" / headers)
        (build.parent / "source").symlink_to("/" / headers.with_name(makefile.name.replace("-amd64", "-common")))
    (package / "boot").mkdir()
    for name in ("vmlinuz", "config"):
        (package / f"boot/{name}-{release}").write_text("CONFIG_RD_ZSTD=y\n")
    (package / "DEBIAN").mkdir()
    (package / "DEBIAN/control").write_text(f"Package: linux-image-{release}\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\n"
                                            "Description: made\n")
    for script, folder in (("postinst", "postinst.d"), ("prerm", "prerm.d"), ("postrm", "postrm.d")):
        path = package / "DEBIAN" / script
        path.write_text(f"#!/bin/sh -e\ndepmod {release}\nrun-parts --report --exit-on-error --arg={release} "
                        f"--arg=/boot/vmlinuz-{release} /etc/kernel/{folder}\n" if script == "postinst" else
                        f"#!/bin/sh\nrun-parts --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/{folder} || true\n")
        path.chmod(0o755)
    out = tree.file(f"/tmp/{package.name}.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, out], check=True, stdout=subprocess.DEVNULL)
    return f"/tmp/{out.name}"
