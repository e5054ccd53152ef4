# SPDX-License-Identifier: MIT
"""Debian packages and archives of them, by dpkg-deb; the same input gives the same bytes."""

import dataclasses
import gzip
import hashlib
import pathlib
import re
import tempfile
import time

from . import tree


class Texts:
    """Scripts and files of packages, from one file of this folder's parent: each below "==> NAME <==", as "tail -n +1" prints several."""
    def __init__(self, name):
        parts = re.split(r"(?m)^==> (\S+) <==\n", (pathlib.Path(__file__).resolve().parents[1] / name).read_text() + "\n")
        self.texts = {name: content[:-1] for name, content in zip(parts[1::2], parts[2::2])}  # an empty line ends each

    def text(self, name, **values):
        content = self.texts[name]
        for key, value in values.items():
            content = content.replace(f"@{key.upper()}@", value)
        return content

    def scripts(self, package, **values):
        """Maintainer scripts of a package: "postinst" and the like to text."""
        named = {kind: f"{package}.{kind}" for kind in ("preinst", "postinst", "prerm", "postrm")}
        return {kind: self.text(name, **values) for kind, name in named.items() if name in self.texts}


@dataclasses.dataclass
class Package:
    name: str
    version: str
    relations: dict  # control field to text
    files: dict = dataclasses.field(default_factory=dict)    # as in tree.py
    scripts: dict = dataclasses.field(default_factory=dict)  # "postinst" and the like to text
    section: str = "non-free/libs"
    about: str = ""
    triggers: str = ""
    source: str = ""  # source package, where it is called otherwise

    def control(self):
        size = sum(len(tree.split(entry)[1]) for entry in self.files.values()) // 1024 + 1
        fields = {"Package": self.name, "Source": self.source, "Version": self.version, "Architecture": "amd64",
                  "Maintainer": "driver world <driver-world@invalid>", "Installed-Size": str(size), **self.relations,
                  "Section": self.section, "Priority": "optional", "Description": self.about or f"{self.name} of the driver world"}
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def conffiles(self):
        return "".join(f"/{name}\n" for name, entry in sorted(self.files.items())
                       if name.startswith("etc/") and tree.split(entry)[0] != "link")

    def file_name(self):
        return f"{self.name}_{self.version.split(':')[-1]}_amd64.deb"

    def build(self, folder):
        with tempfile.TemporaryDirectory(prefix="driver-world.") as name:
            work = pathlib.Path(name)
            work.chmod(0o755)
            tree.write(work, self.files)
            meta = {"control": self.control(), "conffiles": self.conffiles(), "triggers": self.triggers}
            tree.write(work / "DEBIAN", {key: text for key, text in meta.items() if text})
            tree.write(work / "DEBIAN", {key: ("program", text) for key, text in self.scripts.items()})
            folder.mkdir(parents=True, exist_ok=True)
            tree.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", work, folder / self.file_name()])


def stanza(package, archive, path):
    data = (archive / path).read_bytes()
    return (f"{package.control()}Filename: {path}\nSize: {len(data)}\n"
            f"MD5sum: {hashlib.md5(data).hexdigest()}\nSHA256: {tree.sha256(data)}\n")


def release(folder, fields):
    """Writes Release over what the folder holds; nothing is signed, so a source says [trusted=yes]."""
    lines = dict(fields, Date=time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(tree.EPOCH)))
    text = "".join(f"{key}: {value}\n" for key, value in lines.items()) + "SHA256:\n"
    for path in sorted(path for path in folder.rglob("Packages*") if path.is_file()):
        data = path.read_bytes()
        text += f" {tree.sha256(data)} {len(data)} {path.relative_to(folder)}\n"
    (folder / "Release").write_text(text)


def index(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Packages").write_text(text)
    (folder / "Packages.gz").write_bytes(gzip.compress(text.encode(), mtime=tree.EPOCH))


def component(package):
    return package.section.partition("/")[0] if "/" in package.section else "main"


def pool(archive, codename, origin, packages):
    """An archive with pool/ and dists/CODENAME/COMPONENT/, as Debian's and Ubuntu's are."""
    components, dists = sorted({component(package) for package in packages}), archive / "dists" / codename
    for name in components:
        stanzas = []
        for package in sorted((p for p in packages if component(p) == name), key=lambda p: (p.name, p.version)):
            path = f"pool/{codename}/{name}/{package.file_name()}"
            package.build((archive / path).parent)
            stanzas.append(stanza(package, archive, path))
        index(dists / name / "binary-amd64", "\n".join(stanzas))
    release(dists, {"Origin": origin, "Label": origin, "Suite": codename, "Codename": codename, "Architectures": "amd64",
                    "Components": " ".join(components)})


def flat(archive, origin, packages):
    """An archive in one folder, as NVIDIA's for CUDA is."""
    stanzas = []
    for package in sorted(packages, key=lambda p: (p.name, p.version)):
        package.build(archive)
        stanzas.append(stanza(package, archive, f"./{package.file_name()}"))
    index(archive, "\n".join(stanzas))
    release(archive, {"Origin": origin, "Architectures": "amd64"})
