# SPDX-License-Identifier: MIT
"""Expected states of a machine: initial, untouched, ready."""
import contextlib
import pathlib
import re
import sys

from scenario import expect, say

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from tree import compared  # noqa: E402


def differences(view, first, without=()):
    """Lines in which two trees differ, except for paths that may differ (tests/world/not_compared, and `without`)."""
    def counts(line):
        path = re.split(r"\s+", line.strip(), maxsplit=2)[-1].split(" ")[0]
        return path not in without and compared(path, when=("apt", "packages", "walks"))
    now, was = set(filter(counts, view.tree)), set(filter(counts, first.tree))
    return [f"lost {line}" for line in sorted(was - now)] + [f"new {line}" for line in sorted(now - was)]


def expect_as_at_first(view, first):
    expect(view.cmdline == first.cmdline, "the command line is not the first one")
    found = differences(view, first)
    expect(not found, "/etc and /boot are not as at first: " + "; ".join(found[:10]))


def expect_same(view, other):
    """Checks that two machines ended alike after the same plan; one may run on the trial boot, the other on a later one."""
    def lasting(cmdline):
        return [word for word in cmdline.split() if word not in ("p2pd.trial=1", "panic=30")]
    found = differences(view, other, without=["etc/machine-id"])  # made at the first boot: a cut may come before it is on the disk
    expect(lasting(view.cmdline) == lasting(other.cmdline) and not found, "it is not as without a cut: " + "; ".join([view.cmdline, *found[:10]]))


def expect_same_packages(now, before):
    found = sorted(set(now) ^ set(before))
    expect(not found, "packages were changed: " + "; ".join(found[:10]))


@contextlib.contextmanager
def expect_untouched(machine):
    """Checks that no file in /etc and /boot, no package and no boot changes meanwhile."""
    machine.wait_boot()
    first, packages = machine.look("before"), machine.packages()
    yield
    view = machine.look("after")
    expect(view.boot == first.boot, "it was rebooted")
    expect_as_at_first(view, first)
    expect_same_packages(machine.packages(), packages)


@contextlib.contextmanager
def expect_files_kept(machine, but=None):
    """Checks that no file outside p2pd's own state changes meanwhile, except `but`, and that the machine is not rebooted."""
    boot, before = machine.wait_boot(), machine.files()
    say(f"{len(before)} lines about files")
    yield
    expect(machine.wait_boot() == boot, "it was rebooted")
    was, now = set(before), set(machine.files())
    found = [f"lost {line}" for line in sorted(was - now)] + [f"new {line}" for line in sorted(now - was)]
    found = [line for line in found if but is None or but not in line]
    expect(not found, "files have changed: " + "; ".join(found[:10]))


@contextlib.contextmanager
def expect_driver_kept(machine):
    """Checks that the distribution's driver is installed and loaded, before and after."""
    loaded = "cat /sys/module/nvidia/srcversion; nvidia-smi"
    machine.wait_boot()
    with expect_untouched(machine):
        before = machine.run(loaded)
        yield
        expect(machine.run(loaded) == before, "the loaded driver is another one")


def expect_whole_bar1(machine):
    """Checks that BAR1 of each GPU covers its 32 GiB."""
    sizes = machine.run("grep -l 0x030000 /sys/bus/pci/devices/*/class | sed 's/class$/resource/' | xargs -n 1 sed -n 2p").split("\n")
    for start, end, _ in map(str.split, sizes):
        expect(int(end, 16) - int(start, 16) + 1 == 32 << 30, f"BAR1 is {start} to {end}")


# file names are those of the packages where the packages' install lines are in force
MODULES = ("base=nvidia; modinfo nvidia > /dev/null 2>&1 || base=nvidia_current_open; for m in nvidia nvidia_uvm; do n=$base${m#nvidia}; "
           "echo $m $(cat /sys/module/$m/srcversion) $(modinfo -F srcversion $n) $(modinfo -F filename $n); done")


def expect_own_modules(shown):
    """Checks the output of MODULES: the loaded modules are the installed ones, and those are p2pd's."""
    for line in shown.splitlines():
        name, loaded, installed, path = line.split()
        expect(loaded == installed and "/updates/" in path, f"{name}: loaded {loaded}, installed {installed} {path}")


def expect_ready(machine, status):
    """Checks that a machine is ready with a person's tools: status, systemctl, busctl, journalctl, the kernel's own files."""
    seen = {
        "systemctl": machine.run("systemctl show -P ActiveState p2pd-ready.target"),
        "bus": machine.run("busctl get-property org.p2pd1 /org/p2pd1 org.p2pd1.Manager State"),
        "journal": machine.run("journalctl -q --no-pager -b -u p2pd-worker -o cat | tail -3"),
        "is-ready": machine.run("p2pctl is-ready && echo yes"),
        "modules": machine.run(MODULES),
        "groups": machine.run("cat /sys/bus/pci/devices/*/iommu_group/type 2>/dev/null | sort | uniq -c; ls /sys/class/iommu"),
        "cmdline": machine.run("cat /proc/cmdline"),
        "device for containers": machine.run("cat /run/cdi/p2pd.json"),
    }
    for what, text in seen.items():
        say(f"{what}: " + text.replace("\n", "\n      "))
    expect(status["state"] == "ready" and seen["bus"] == 's "ready"' and seen["systemctl"] == "active" and seen["is-ready"].endswith("yes"),
           "status, bus and systemctl do not agree that it is ready")
    expect("P2PD_FIT_FOR=" in seen["device for containers"], "containers are given no device")
    expect_own_modules(seen["modules"])
    expect("DMA" not in seen["groups"], f"an IOMMU translates: {seen['groups']}")
