# SPDX-License-Identifier: MIT
"""Machines of Debian 13 that systemd-boot starts, with the real bootctl, kernel-install and ukify, and Proxmox's tool if its source is there.

Not real: kernels (a PE file that ukify takes), initrds (a line of text that says when it was made: mkinitramfs takes long), EFI
variables (files), and the boot itself: the entry that `bootctl list` of these files calls the default is started, as systemd-boot
would do, once if LoaderEntryOneShot names it.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import uuid

from tree import write
from world_tree import Tree, need

MACHINE_ID = "0123456789abcdef0123456789abcdef"
OLD, NEW, NEXT = "6.12.48+deb13-amd64", "6.12.57+deb13-amd64", "6.12.63+deb13-amd64"
ROOT_LINE = "root=UUID=6f1b7a52-0d5c-4b9a-9d3e-2b8c4f6a1e70 ro quiet"
TRIAL = "a-p2pd-trial"
TRIAL_WORDS = "p2pd.trial=1 panic=30"
WANTED = ["iommu=pt", "pci=disable_acs_redir=0000:00:01.1"]
VARIABLES, LOADER_GUID, GLOBAL_GUID = "sys/firmware/efi/efivars", "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "8be4df61-93ca-11d2-aa0d-00e098032b8c"
# tools that install kernels see a partition at /efi that is a folder, and no container
ENVIRONMENT = ("env", "SYSTEMD_RELAX_ESP_CHECKS=1", "BOOT_MNT=/efi", "DEB_MAINT_PARAMS=configure")
NOT_A_CONTAINER = "int detect_container(void) { return 0; }\nint running_in_chroot(void) { return 0; }\n"
MKINITRAMFS = """#!/bin/sh
# Stands in for initramfs-tools' own: a line that differs each time.
[ "$1" != --version ] || { echo initramfs-tools; exit; }
mkdir -p /var/lib/initramfs-tools
while [ $# -gt 1 ]; do [ "$1" != -o ] || out=$2; shift; done
echo "initrd of $1" >> /var/lib/initramfs-tools/made
echo "initrd of $1, $(wc -l < /var/lib/initramfs-tools/made)" > "$out"
"""
# mount of a device that is a folder: what is below /srv/partitions
MOUNT = """#!/bin/sh
# Stands in for the kernel's block devices: mounts the folder of a partition. The first is as one that systemd has mounted at /efi: it
# cannot be mounted read-only beside that, and mount says so in a warning on standard output.
for word; do
    case $word in
        /dev/disk/by-uuid/*) device=/srv/partitions/${word##*/} ;;
        -*|vfat) ;;
        *) place=$word ;;
    esac
done
[ -n "${device:-}" ] || exec /usr/bin/mount.real "$@"
[ -e "/dev/disk/by-uuid/${device##*/}" ] || { echo "mount: $place: special device /dev/disk/by-uuid/${device##*/} does not exist." >&2; exit 32; }
case "$device $*" in "/srv/partitions/0A1B-2C3D "*" -o ro "*)
    printf "mount warning:\\n      * vda2: Can't mount, would change RO state\\n"
    echo "mount: $place: $device already mounted on /efi." >&2
    exit 32 ;;
esac
/usr/bin/mount.real --bind "$device" "$place"
"""
COUNTED = re.compile(r"(.*)\+(\d+)(?:-(\d+))?(\.\w+)")  # name of an entry's file: boots left, boots done
PARTITIONS = ("0A1B-2C3D", "4E5F-6071")


class LoaderTree(Tree):
    """A Debian 13 with a partition at /efi."""

    LOADER = '&& mount --bind "$dir/efi" "$dir/efi"'

    def __init__(self, work, name, on, since=None, upper=None):
        super().__init__(work, name, on, since, upper)
        if isinstance(on, Tree):
            shutil.copy(on.work / "cmdline", self.work)

    # ---- what a person or a package does

    def tool(self, *argv, check=True):
        """Output of a tool that installs kernels."""
        return self.run(*ENVIRONMENT, *argv, check=check)

    def lay(self, cmdline=True):
        """Makes the tree a machine with two kernels; `cmdline`: with /etc/kernel/cmdline."""
        (self.path / "efi").mkdir()
        shutil.rmtree(self.file("/boot/grub"), ignore_errors=True)
        write(self.file("/etc/machine-id"), MACHINE_ID + "\n")
        library = self.work / "not-a-container.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", library], input=NOT_A_CONTAINER, text=True, check=True)
        write(self.file("/usr/lib/not-a-container.so"), library.read_bytes())
        write(self.file("/etc/ld.so.preload"), "/usr/lib/not-a-container.so\n")
        write(self.file("/usr/sbin/mkinitramfs"), MKINITRAMFS, 0o755)
        write(self.file("/sys/firmware/efi/efivars/LoaderFeatures-" + LOADER_GUID), b"\6\0\0\0" + (0x3FFFFF).to_bytes(8, "little"))
        self.variable("LoaderInfo", "systemd-boot 257.13-1~deb13u1")
        write(self.work / "cmdline", ROOT_LINE + "\n")
        if cmdline:
            write(self.file("/etc/kernel/cmdline"), ROOT_LINE + "\n")
        self.lay_partition()
        for release in (OLD, NEW):
            self.adds_kernel(release)
        self.runs_kernel(NEW)
        self.boot()

    def lay_partition(self):
        self.tool("bootctl", "install", "--esp-path=/efi", "--no-variables")

    def adds_kernel(self, release):
        """What dpkg does for a kernel package: its files, and the hooks of /etc/kernel."""
        self.lay_kernel(release)
        self.tool("run-parts", "--report", "--exit-on-error", f"--arg={release}", f"--arg=/boot/vmlinuz-{release}", "/etc/kernel/postinst.d")

    def lay_kernel(self, release):
        kernel = (self.path / "usr/lib/systemd/boot/efi/linuxx64.efi.stub").read_bytes() + release.encode()
        write(self.file(f"/boot/vmlinuz-{release}"), kernel)
        write(self.file(f"/boot/config-{release}"), "CONFIG_RD_GZIP=y\n")
        for name in ("order", "builtin", "builtin.modinfo"):
            write(self.file(f"/usr/lib/modules/{release}/modules.{name}"), "")

    def removes_kernel(self, release):
        for name in ("vmlinuz", "config"):
            self.file(f"/boot/{name}-{release}").unlink()
        self.run("env", *ENVIRONMENT[1:-1], "DEB_MAINT_PARAMS=remove", "run-parts", "--report", "--exit-on-error", f"--arg={release}",
                 f"--arg=/boot/vmlinuz-{release}", "/etc/kernel/postrm.d")

    # ---- firmware and loader

    def variable(self, name, text=None, guid=LOADER_GUID):
        """Value of an EFI variable that is a text, "" if there is none; sets it to `text`."""
        path = self.path / VARIABLES / f"{name}-{guid}"
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\7\0\0\0" + (text + "\0").encode("utf-16-le"))
        return path.read_bytes()[4:].decode("utf-16-le").rstrip("\0") if path.exists() else ""

    def forgets(self, name):
        (self.path / VARIABLES / f"{name}-{LOADER_GUID}").unlink(missing_ok=True)

    def entries(self):
        """What bootctl shows of the entries."""
        listed = json.loads(self.tool("bootctl", "list", "--json=short"))
        return [entry for entry in listed if entry["type"] in ("type1", "type2")]

    def next_entry(self):
        """The entry that boots next."""
        entries = self.entries()
        found = [entry for entry in entries if entry["isDefault"]]
        need(len(found) == 1, f"{len(found)} defaults among {[entry['id'] for entry in entries]}")
        return found[0]

    def line_of(self, entry):
        """Kernel arguments of an entry, as the kernel gets them."""
        initrd = "".join(f"initrd={path} ".replace("/", "\\") for path in entry.get("initrd") or [])
        return f"{initrd}{entry['cmdline']}"

    def boot(self, arguments=None):
        """Boots as systemd-boot does."""
        if arguments is None:
            entry = self.next_entry()
            self.forgets("LoaderEntryOneShot")
            self.variable("LoaderEntrySelected", entry["id"])
            self.counts_down(pathlib.PurePosixPath(entry["path"]))
            arguments = self.line_of(entry)
        (self.work / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.work / "cmdline").write_text(arguments + "\n")
        shutil.rmtree(self.file("/run/p2pd"), ignore_errors=True)
        if self.file("/etc/tmpfiles.d/p2pd-boot.conf").exists():
            self.run("systemd-tmpfiles", "--remove", "--boot", "/etc/tmpfiles.d/p2pd-boot.conf")

    def counts_down(self, path):
        """Renames an entry that counts its boots, as systemd-boot does before it starts it."""
        found = COUNTED.fullmatch(path.name)
        if found:
            name, left, done, kind = found.groups()
            self.file(str(path)).rename(self.file(str(path.with_name(f"{name}+{int(left) - 1}-{int(done or 0) + 1}{kind}"))))

    def blesses(self):
        """What systemd-bless-boot does once the system is up: the entry counts no longer."""
        for path in self.path.glob("efi/*/*/*+*-*.*"):
            found = COUNTED.fullmatch(path.name)
            if found:
                path.rename(path.with_name(found[1] + found[4]))

    def running(self):
        return (self.work / "cmdline").read_text()

    def has(self, *words):
        """Checks that the running kernel has these arguments."""
        return all(word in self.running().split() for word in words)

    def boots_still(self):
        """Checks that what boots next is complete: the arguments of before (and a person's nomodeset), those on trial, or the new ones."""
        entry = self.next_entry()
        words = [word for word in entry["cmdline"].split() if word != "nomodeset" and not word.startswith("systemd.machine_id=")]
        new = ROOT_LINE.split() + WANTED
        on_trial = entry["id"].startswith(TRIAL)
        allowed = [new + TRIAL_WORDS.split()] if on_trial else [ROOT_LINE.split(), new]
        need(words in allowed, f"{entry['id']} boots with {words}")
        self.is_whole(entry)

    def on_partition(self, entry, path):
        return self.file(entry["root"]) / path.lstrip("/")

    def is_whole(self, entry):
        """Checks that the files which an entry names are as they were installed."""
        if entry["type"] == "type2":
            images = {path.read_bytes() for path in self.path.glob("efi/EFI/Linux/*.efi") if not path.name.startswith(TRIAL)}
            need(self.file(entry["path"]).read_bytes() in images, f"{entry['path']} is no copy of an image")
            return
        release = next(release for release in (OLD, NEW, NEXT) if release in entry["linux"])
        for path, original in ((entry["linux"], f"vmlinuz-{release}"), (entry["initrd"][0], f"initrd.img-{release}")):
            need(self.on_partition(entry, path).read_bytes() == self.file(f"/boot/{original}").read_bytes(), f"{path} is not /boot/{original}")


class ImageTree(LoaderTree):
    """The same with unified images; `signed`: with Secure Boot, and a key of the machine."""

    def lay(self, cmdline=True, signed=False):
        write(self.file("/etc/kernel/install.conf"), "layout=uki\n")
        if signed:
            subprocess.run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=machine/",
                            "-keyout", self.file("/etc/kernel/machine.key"), "-out", self.file("/etc/kernel/machine.crt")], check=True,
                           stderr=subprocess.DEVNULL)
            write(self.file("/etc/kernel/uki.conf"), "[UKI]\nSecureBootPrivateKey=/etc/kernel/machine.key\n"
                                                     "SecureBootCertificate=/etc/kernel/machine.crt\n")
            write(self.path / VARIABLES / f"SecureBoot-{GLOBAL_GUID}", b"\6\0\0\0\1")
        super().lay(cmdline)


class ProxmoxTree(LoaderTree):
    """A Debian 13 whose two partitions proxmox-boot-tool keeps in step; P2PD_PROXMOX_BOOT: folder of its source."""

    SOURCE = os.environ.get("P2PD_PROXMOX_BOOT", "")
    PLACES = {"src/bin/proxmox-boot-tool": ["usr/sbin"], "src/proxmox-boot/functions": ["usr/share/proxmox-kernel-helper/scripts"],
              "src/proxmox-boot/zz-proxmox-boot": ["etc/kernel/postinst.d", "etc/kernel/postrm.d"],
              "src/proxmox-boot/proxmox-boot-sync": ["etc/initramfs/post-update.d"]}
    LOADER = '&& for each in "$dir"/srv/partitions/*; do [ ! -d "$each" ] || mount --bind "$each" "$each" || exit 1; done'

    def lay_partition(self):
        for source, places in self.PLACES.items():
            for place in places:
                write(self.path / place / pathlib.Path(source).name, (pathlib.Path(self.SOURCE) / source).read_bytes(), 0o755)
        (self.path / "usr/bin/mount").rename(self.path / "usr/bin/mount.real")
        write(self.file("/usr/bin/mount"), MOUNT, 0o755)
        for partition in PARTITIONS:
            write(self.path / "dev/disk/by-uuid" / partition, "")
            place = self.path / "srv/partitions" / partition
            (place / "EFI/proxmox").mkdir(parents=True)
            self.tool("bootctl", "install", f"--esp-path=/srv/partitions/{partition}", "--no-variables")
            write(place / "loader/loader.conf", "timeout 3\ndefault proxmox-*\n")
        write(self.file("/etc/kernel/proxmox-boot-uuids"), "\n".join(PARTITIONS) + "\n")

    def lay_kernel(self, release):
        super().lay_kernel(release)
        self.tool("proxmox-boot-tool", "kernel", "add", release)

    def removes_kernel(self, release):
        self.tool("proxmox-boot-tool", "kernel", "remove", release)
        super().removes_kernel(release)

    def entries(self, partition=PARTITIONS[0]):
        listed = json.loads(self.tool("bootctl", "list", "--json=short", f"--esp-path=/srv/partitions/{partition}"))
        return [entry for entry in listed if entry["type"] == "type1"]

    def boots_still(self):
        super().boots_still()
        for partition in PARTITIONS[1:]:
            for entry in self.entries(partition):
                if not entry["id"].startswith(TRIAL):
                    self.is_whole(entry)
