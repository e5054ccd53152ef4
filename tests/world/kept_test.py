#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kept_test.py ROOT [CASE]...: p2pd's modules beside packages that stay, under the real apt, dpkg, depmod and hooks of kernels.

Overlays of a tree made by `root`, whose driver is Debian's: nvidia-current-open*, install lines, DKMS. Prints "ok NAME" or "FAIL NAME"
a line; ROOT is not changed, and mounts and processes end with the script. Needs root.
"""
import sys

sys.dont_write_bytecode = True
from actions_test import KEPT, settle, with_keep  # noqa: E402
from archive import Archive, kernel_package  # noqa: E402
from world_tree import need, run_cases  # noqa: E402

STEPS = [("driver-source", {"entry": KEPT["entry"]}), ("driver-build", {"entry": KEPT["entry"]}), ("driver-pins", KEPT), ("driver-modules", KEPT)]
BAN, OVERRIDE, HOOK, REMOVAL = ("/etc/modprobe.d/00-p2pd-trial.conf", "/etc/depmod.d/zz-p2pd.conf", "/etc/kernel/postinst.d/dkms-p2pd",
                                "/etc/kernel/postrm.d/dkms-p2pd")


def place(tree, kernel=None):
    return tree.file(f"/lib/modules/{kernel or tree.kernel}/updates/p2pd")


def keep(tree):
    """Applies STEPS until they are permanent. The worker is installed where the hook looks for it."""
    settle(tree, "apply", tree.plan(STEPS))
    worker = tree.file("/usr/libexec/p2pd/p2pd-worker")
    worker.parent.mkdir(parents=True, exist_ok=True)
    worker.write_text("#!/bin/sh\nLD_LIBRARY_PATH=/mnt/lib exec /mnt/bin/p2pd-worker \"$@\"\n")
    worker.chmod(0o755)


def is_ours(tree, wanted=True):
    for module in ("nvidia-current-open", "nvidia-current-open-uvm"):
        file = tree.loaded(module)
        need(("updates/p2pd/" in file) == wanted and ("updates/dkms/" in file) != wanted, f"modprobe would load {file}")


def case_modules_win_and_packages_stay(tree):
    before = tree.installed()
    keep(tree)
    is_ours(tree)
    need(tree.installed() == before, f"packages came or went: {tree.installed() ^ before}")
    need(not tree.file(BAN).exists(), "the ban stays after the end")
    archive = Archive(tree)
    for package in ("libcuda1", "nvidia-driver", "nvidia-kernel-open-dkms"):
        archive.lists({"Package": package, "Version": "570.200.01-1"})
    archive.lists({"Package": "libnvidia-encode1", "Version": "570.123.11-1"})
    archive.lists({"Package": "libnvidia-encode1", "Version": "570.200.01-1"})
    archive.lists({"Package": "nvidia-driver-cuda", "Version": "570.200.01-1"})
    archive.update()
    said = tree.run("apt-get", "--simulate", "full-upgrade")
    need("570.200.01" not in said, said)
    need("Inst libnvidia-encode1 (570.123.11-1" in tree.run("apt-get", "--simulate", "install", "libnvidia-encode1"), "one of the same version does not come")
    status, said = tree.enter("apt-get", "--simulate", "install", "nvidia-driver-cuda")
    need(status != 0, said)


def case_undone_after_somebody_ran_depmod(tree):
    keep(tree)
    tree.run("sh", "-c", f"echo '# changed' >> /lib/modules/{tree.kernel}/modules.dep && depmod {tree.kernel}")
    settle(tree, "revert")
    is_ours(tree, False)
    need(not place(tree).exists() and not tree.file(OVERRIDE).exists() and not tree.file(HOOK).exists(), "something stays")
    need("updates/p2pd" not in tree.file(f"/lib/modules/{tree.kernel}/modules.dep").read_text(), "modules.dep names what is gone")


def case_hook_installs_without_a_trial(tree):
    keep(tree)
    tree.run("sh", "-c", f"rm -r /lib/modules/{tree.kernel}/updates/p2pd && depmod {tree.kernel}")
    is_ours(tree, False)
    said = tree.run(HOOK, tree.kernel)
    is_ours(tree)
    need(not tree.file(BAN).exists(), f"it began a trial: {said}")
    settle(tree, "revert")
    is_ours(tree, False)


def case_secure_boot_turned_on_later(tree):
    """They are signed already; those that are not, as an older p2pd left them, or of a key that is not enrolled, are signed by apply."""
    keep(tree)
    plan, nvidia = tree.plan(STEPS), place(tree) / "nvidia-current-open.ko"

    def signer():
        return tree.run("modinfo", "-F", "sig_key", f"/lib/modules/{tree.kernel}/updates/p2pd/{nvidia.name}").strip()

    def variable(name, vendor, data):
        file = tree.file(f"/sys/firmware/efi/efivars/{name}-{vendor}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes((6, 0, 0, 0)) + data)

    def enrol():
        variable("MokListRT", "605dab50-e046-4300-abb6-3dd810dd8b23", tree.file("/var/lib/dkms/mok.pub").read_bytes())

    def stays():
        told = settle(tree, "apply", plan)
        need(not told["changed"], f"apply changed something: {told}")

    def signed_again(why):
        told = tree.p2pctl("doctor", plan, live=True)[1]
        need(why in str(told), told)
        need(settle(tree, "apply", plan)["result"] == "done", "not done")
        stays()
    first = signer()
    need(first, "not signed, though DKMS made a key")
    variable("SecureBoot", "8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\1")
    tree.file("/sys/kernel/security").mkdir(parents=True)
    tree.file("/sys/kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
    enrol()
    stays()
    content = nvidia.read_bytes()
    end = content.index(b"~Module signature appended~")
    nvidia.write_bytes(content[:end - 12 - int.from_bytes(content[end - 4:end], "big")])
    signed_again("is not signed: with Secure Boot on, the kernel refuses it")
    need(signer() == first, f"signed by {signer()}, not {first}")
    tree.run("openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=another/", "-outform", "DER",
             "-keyout", "/var/lib/dkms/mok.key", "-out", "/var/lib/dkms/mok.pub")
    variable("MokListRT", "605dab50-e046-4300-abb6-3dd810dd8b23", b"none")
    stays()  # signing would not help
    enrol()
    signed_again("is signed with a key that is not enrolled")
    need(signer() not in ("", first), f"signed by {signer()}")


def case_kernel_that_they_do_not_build_for(tree):
    """Its package is installed all the same, and its removal leaves nothing."""
    keep(tree)
    release = "6.1.0-999-amd64"
    tree.file("/etc/kernel/postinst.d/dkms").chmod(0o644)  # it would abort the installation, because of the packages' own modules
    said = tree.run("dpkg", "--install", kernel_package(tree, release, "modules:\n\tfalse\n"))
    need("no P2P driver for kernel 6.1.0-999-amd64 yet" in said, said)
    need(not place(tree, release).exists() and not tree.file(BAN).exists(), "it left something")
    is_ours(tree)
    place(tree, release).mkdir(parents=True)
    for parameters, stays in (("upgrade", True), ("remove", False)):
        tree.run("env", f"DEB_MAINT_PARAMS='{parameters}'", REMOVAL, release)
        need(place(tree, release).exists() == stays, f"{parameters}: {'gone' if stays else 'there'}")
    tree.run("dpkg", "--purge", f"linux-image-{release}")


def case_override_of_somebody_else(tree):
    tree.file("/etc/depmod.d").mkdir(exist_ok=True)
    tree.file("/etc/depmod.d/zzz.conf").write_text("# mine\noverride nvidia-current-open-uvm * updates/dkms\n")
    code, told = tree.p2pctl("apply", tree.plan(STEPS), live=True)
    need(code == 1 and "/etc/depmod.d/zzz.conf:2 makes modprobe load a nvidia-uvm" in str(told), f"{code} {told}")
    need(not tree.file(BAN).exists() and not place(tree).exists() and not tree.file(OVERRIDE).exists(), "something was changed")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), with_keep))
