# SPDX-License-Identifier: MIT
"""Machines gpu1, gpu2, ... that are up at once, each with two simulated GPUs and sshd, on the loopback device of one network.

P2P works there once the kernel has the argument of PLAN, which takes one reboot; where /etc/broken is, it never does. The
address of gpu1 is 127.0.1.1.
"""
import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/system"))
from namespaces import arguments  # noqa: E402
from service import ARGUMENT, BUILD, Scenarios, ServiceMachine  # noqa: E402

PLAN = f"""# SPDX-License-Identifier: MIT
name: pair
title: Two GPUs that want a kernel argument
steps:
  - {{gate: argument, title: The kernel has it, check: kernel-cmdline, fix: kernel-cmdline, with: {{arguments: [{ARGUMENT}]}}}}
  - {{goal: proof, title: P2P is proven, check: p2p-bench, with: {{mode: quick}}}}
"""
PLANS = {
    "pair": PLAN,
    "stuck": PLAN.partition("  - ")[0].replace("pair", "stuck") + "  - {gate: gpus, title: Ninety GPUs, check: gpu-inventory, with: {at_least: 90}}\n",
}
CONFIG = "plan: pair\nreboot_delay_s: 1\n"
# p2pd runs it in place of the installed one, whose driver it names
BENCH = f"""#!/bin/sh
machine=dead
grep -q {ARGUMENT} /proc/cmdline && [ ! -e /etc/broken ] && machine=right
P2PD_SIM_CUDA=/opt/sim/$machine.json LD_LIBRARY_PATH=/opt/sim exec /usr/bin/p2p-bench "$@"
"""
GPUS = [{"name": "NVIDIA GeForce RTX 4090", "uuid": f"{number:032x}", "address": f"0000:0{number}:00.0", "memory_mib": 128, "free_mib": 96,
         "sm": [8, 9], "multiprocessors": 8} for number in (1, 2)]
DEAD = [{"kind": "dead-direction", "from": one, "to": 1 - one} for one in (0, 1)]


def simulated(work, services):
    """The folder of a layer with the simulated driver, and these services started at boot."""
    layer = work / "simulated"
    for folder in ("opt/sim", "usr/local/bin", "etc/systemd/system/multi-user.target.wants"):
        (layer / folder).mkdir(parents=True)
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2"):
        shutil.copy(BUILD / "sim" / library, layer / "opt/sim")
    for name, faults in (("right", []), ("dead", DEAD)):
        (layer / f"opt/sim/{name}.json").write_text(json.dumps({"link": {"gb_s": 25, "latency_ns": 1200}, "devices": GPUS, "faults": faults}))
    bench = layer / "usr/local/bin/p2p-bench"
    bench.write_text(BENCH)
    bench.chmod(0o755)
    for service in services:
        (layer / f"etc/systemd/system/multi-user.target.wants/{service}.service").symlink_to(f"/lib/systemd/system/{service}.service")
    return layer


def address(number):
    return f"127.0.1.{number}"


def names(count):
    return [f"gpu{number}" for number in range(1, count + 1)]


@contextlib.contextmanager
def fleet(work, layers, count, key, files):
    """Machines of these layers that root may log in to with the key whose public half is in the file `key`; `files(number)` are more."""
    hosts = "127.0.0.1 localhost\n" + "".join(f"{address(number)} {name}\n" for number, name in enumerate(names(count), 1))
    for number in range(1, count + 1):  # Slurm resolves no address where 127.0.0.1 is all that an interface has
        subprocess.run(["ip", "address", "add", f"{address(number)}/32", "dev", "lo"], check=True)
    with contextlib.ExitStack() as stack:
        machines = []
        for number, name in enumerate(names(count), 1):
            given = {"/etc/hostname": f"{name}\n", "/etc/hosts": hosts, "/root/.ssh/authorized_keys": key.read_text(),
                     "/etc/ssh/sshd_config.d/fleet.conf": f"ListenAddress {address(number)}\nUseDNS no\n", **files(number)}
            machines.append(stack.enter_context(ServiceMachine(work, name, layers, given, network="shared")))
        yield machines


def begin():
    """Arguments of a script called with ROOT DEB [CASE]...: the tree, a work folder, one in it for files of no machine, p2pd's package, and
    the scenarios."""
    root, work, words = arguments(network=True)
    if not words or not (debs := list(pathlib.Path(words[0]).glob("p2pd_*.deb"))):
        raise SystemExit(sys.modules["__main__"].__doc__)
    place = work / "control"
    place.mkdir(parents=True)
    return root, work, place, debs[0].resolve(), Scenarios(root, work, words[1:], with_p2pd=False)


def key_pair(place):
    """Makes an ssh key; returns the file of its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "key"], check=True)
    return place / "key.pub"


def known_hosts(root, count):
    """Lines of known_hosts for these machines, which have the host key of their tree."""
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().rsplit(None, 1)[0]
    return "".join(f"{address(number)} {host_key}\n" for number in range(1, count + 1))


def repository(folder, deb):
    """Makes an apt repository with the package in a new folder, signed with a new key; returns the key."""
    with tempfile.TemporaryDirectory() as home:
        settings = {"PATH": os.environ["PATH"], "GNUPGHOME": home, "P2PD_KEY": "repository@p2pd.invalid", "P2PD_URL": "https://p2pd.invalid"}

        def run(*argv):
            return subprocess.run(argv, env=settings, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", settings["P2PD_KEY"], "ed25519", "sign", "never")
        run(TOP / "packaging/repository", folder, deb)
        key = run("gpg", "--export")
        run("gpgconf", "--kill", "all")
    return key


def serve(folder):
    """A web server of a folder, on the loopback device; its address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def environment(home):
    """Environment of a program that uses nothing of this account."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "TERM": "dumb", "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1", "ANSIBLE_LOCALHOST_WARNING": "False"}
