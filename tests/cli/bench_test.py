#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2p-bench itself on the simulated driver: a clean machine is proven, every fault is rejected with the right words."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("P2PD_BUILD", ROOT / "build/dev")).resolve()
BENCH = BUILD / "bin/p2p-bench"
SIMULATED_NCCL = BUILD / "sim/libnccl.so.2"
SCHEMA = json.loads((ROOT / "config/schema/bench.schema.json").read_text())
SAMPLED = os.environ.get("P2PD_SWEEP_EVERY", "1") != "1"  # of modes and widths one
PROVEN, ERROR, NOT_PROVEN, NOTHING, LIMITED = 0, 1, 3, 4, 5

# where the GPUs of these machine records sit: their paths are then known, and speed is judged
TWO = "rtx4090-x2-am5"
EIGHT = "rtx4090-x8-two-socket"


LINK = {"gb_s": 25.8, "both_gb_s": 50.0, "latency_ns": 1200, "staged_gb_s": 18.0, "staged_latency_ns": 11000, "load_gb_s": 22.0,
        "store_gb_s": 24.0}


def gpu_addresses(record):
    """PCI addresses of the NVIDIA display functions of a record's lspci dump."""
    dump = (BUILD / "machines" / record / "lspci-xxxx.txt").read_text()
    return re.findall(r"^([0-9a-f:.]+) (?:VGA compatible|3D) controller: NVIDIA", dump, re.M)


def machine(gpus, addresses=None, **more):
    """A simulated machine of healthy Gen4 cards. A handshake waits for 5 s, as long as a loaded host may take, where none hangs."""
    names = addresses or [f"0000:{i + 1:02x}:00.0" for i in range(gpus)]
    names = [a if a.count(":") == 2 else "0000:" + a for a in names]
    return {"link": LINK, "patience": 1 if "faults" in more else 25,
            "devices": [{"name": "NVIDIA GeForce RTX 4090", "uuid": f"{i + 1:032x}", "address": names[i], "memory_mib": 128,
                         "free_mib": 96, "sm": [8, 9], "multiprocessors": 8} for i in range(gpus)]} | more


def fault(kind, **more):
    return {"kind": kind, "from": 0, "to": 1} | more


# an ELF program for x86-64 that writes to address 0: xor eax, eax; mov [rax], eax
CRASH = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0) + \
    struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 124, 124, 4096) + b"\x31\xc0\x89\x00"


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-bench-"))
        self.addCleanup(shutil.rmtree, self.scratch)

    def bench(self, description, *options, code=None, timeout=120, root=None, environment=()):
        """Runs p2p-bench on a simulated machine."""
        file = self.scratch / "machine.json"
        file.write_text(json.dumps(description))
        variables = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "sim"), "P2PD_SIM_CUDA": str(file)} | dict(environment)
        command = [BENCH, *options] + (["--root", root] if root else [])
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=variables, stdin=subprocess.DEVNULL)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, description, *options, code=PROVEN, **more):
        report = json.loads(self.bench(description, "--json", *options, code=code, **more).stdout)
        jsonschema.validate({k: v for k, v in report.items() if k not in ("gain", "advice")}, SCHEMA)
        return report

    def fails(self, report):
        return [r["text"] for r in report["judgement"]["remarks"] if r["grade"] == "fail"]

    def kernel_log(self):
        """A root with a kernel log that already has an Xid of before the run."""
        log = self.scratch / "root/dev/kmsg"
        log.parent.mkdir(parents=True)
        log.write_text("6,1,1,-;an old message: NVRM: Xid (PCI:0000:01:00): 79, before the run\n")
        for name in ("sys/bus/pci/devices", "proc"):
            (self.scratch / "root" / name).mkdir(parents=True)
        return log


class DriverPeers(Case):
    def test_an_answer_or_why_there_is_none(self):
        """Without the driver's library, too; with it, whatever it says of this host."""
        done = self.bench(machine(2), "--driver-peers")
        peers = json.loads(done.stdout)
        self.assertEqual(peers["schema"], "p2pd.driver-peers/1")
        self.assertEqual(done.returncode, NOTHING if "not_available" in peers else PROVEN)
        self.assertEqual(len(peers["pairs"]), len(peers["gpus"]) * max(0, len(peers["gpus"]) - 1))


class Clean(Case):
    def test_two(self):
        report = self.report(machine(2))
        self.assertTrue(report["judgement"]["proven"])
        self.assertEqual(report["wrong"], [])
        for pair in report["pairs"]:
            for test in ("copy-push", "copy-pull", "store", "load", "load-plain", "handshake-push", "handshake-pull",
                         "handshake-ll", "vmm", "pool", "copy-timed"):
                self.assertGreater(pair["verified_bytes"][test], 0, test)
            self.assertAlmostEqual(pair["copy_gb_s"]["median"], 25.8, delta=0.3)
            self.assertAlmostEqual(pair["chase_ns"]["median"], 1200, delta=1)
            self.assertAlmostEqual(pair["ping_pong_ns"]["median"], 1200, delta=5)
            self.assertAlmostEqual(pair["staged_gb_s"]["median"], 18, delta=0.3)

    def test_full(self):
        """A second process, whose peers are enabled in the other order."""
        description = machine(2)
        for device in description["devices"]:
            device["atomics"] = True
        report = self.report(description, "--full")
        for pair in report["pairs"]:
            for test in ("ipc-store", "ipc-copy", "ipc-vmm"):
                self.assertGreater(pair["verified_bytes"][test], 0, test)
        self.assertEqual([a["exact"] for a in report["atomics"]], [True, True])

    def test_eight_on_known_paths(self):
        report = self.report(machine(8, gpu_addresses(EIGHT)), "--quick", root=BUILD / "machines" / EIGHT)
        self.assertTrue(report["judgement"]["proven"], report["judgement"])
        self.assertEqual(len(report["pairs"]), 56)
        self.assertTrue(all(p["payload_gb_s"] > 20 for i, row in enumerate(report["paths"]) for j, p in enumerate(row) if i != j))

    def test_a_record_in_one_file(self):
        file, temporary = self.scratch / "record.json", self.scratch / "tmp"
        temporary.mkdir()
        subprocess.run([BUILD / "bin/p2pctl", "record", file, "--root", BUILD / "machines" / TWO], check=True, stdout=subprocess.DEVNULL)
        description, place = machine(2, gpu_addresses(TWO), link=LINK | {"gb_s": 13}), {"TMPDIR": str(temporary)}
        report, wanted = (self.report(description, "--quick", root=root, environment=place) for root in (file, BUILD / "machines" / TWO))
        self.assertEqual((report["paths"], report["machine"]), (wanted["paths"], wanted["machine"]))
        self.assertEqual(list(temporary.iterdir()), [])
        file.write_text("")
        self.assertIn("record.json: not JSON", self.bench(description, root=file, code=ERROR).stderr)

    def test_sixteen_quick(self):
        """More than nine GPUs: CUDA allows eight peers at once, so peers change from round to round."""
        report = self.report(machine(16, link=LINK), "--quick", timeout=300)
        self.assertTrue(report["judgement"]["proven"], report["judgement"]["summary"])

    def test_three_with_mixed_memory_and_sizes(self):
        description = machine(3)
        description["devices"][1]["free_mib"] = 88
        report = self.report(description, "--quick")
        arenas = [g["arena_bytes"] for g in report["gpus"]]
        self.assertLess(arenas[1], arenas[0])

    def test_sweep(self):
        description = machine(2)
        for device in description["devices"]:
            device.update(memory_mib=2048, free_mib=1900)
        report = self.report(description, "--quick", "--sweep")
        self.assertEqual(len(report["swept_bytes"]), 2)

    def test_collectives(self):
        description = machine(2)
        for device in description["devices"]:
            device["free_mib"] = 84
        report = self.report(description, "--collectives", environment={"NCCL_P2P_LEVEL": "SYS"})
        self.assertTrue(report["collectives"]["results"], report["collectives"]["not_run"])
        self.assertTrue(all(r["wrong"] == 0 for r in report["collectives"]["results"]))

    def test_text(self):
        done = self.bench(machine(2), "--quick", code=PROVEN)
        self.assertRegex(done.stdout, r"^proven: 2 ordered pairs")
        self.assertNotIn("\x1b", done.stdout)
        lines = self.bench(machine(2), "--bug-report", code=PROVEN).stdout.splitlines()
        self.assertLessEqual(len(lines), 40)
        self.assertTrue(any("writer" in line and "owner" in line for line in lines), lines)

    def test_by_p2pctl(self):
        file = self.scratch / "machine.json"
        file.write_text(json.dumps(machine(2)))
        variables = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "sim"), "P2PD_SIM_CUDA": str(file)}
        done = subprocess.run([BUILD / "bin/p2pctl", "bench", "--json", "--quick"], capture_output=True, text=True, timeout=60, env=variables)
        self.assertEqual(done.returncode, PROVEN, done.stderr)
        self.assertEqual(json.loads(done.stdout)["mode"], "quick")

    def test_before_and_after(self):
        before, slow = self.scratch / "before.json", machine(2, link=LINK | {"gb_s": 12.9, "latency_ns": 2400})
        self.bench(slow, "--save", before, code=PROVEN)
        gain = self.report(machine(2), "--against", before)["gain"]
        self.assertRegex("\n".join(gain), r"GPU 0 -> GPU 1: copy 12\.\d.* -> 25\.\d.*x2\.0")
        before.write_text("{")
        self.assertTrue(self.report(machine(2), "--against", before)["gain"][-1])


class Faults(Case):
    """Each fault, what a failing sentence must say, and how a run ends: a fault of stores or loads leaves uses of P2P that do without."""

    MODES = ("--quick",), (), ("--full",)
    TABLE = [
        (fault("wrong-byte", engine="copy", at=5000), r"^GPU 0 -> GPU 1: copy-pu\w+: \d+ wrong words? in .*, one at byte \d+", NOT_PROVEN),
        (fault("wrong-byte", engine="load", at=5000), r"^GPU 0 -> GPU 1: load: \d+ wrong words?", LIMITED),
        (fault("dead-direction"), r"^GPU 0 -> GPU 1: copy-push: .* lost", NOT_PROVEN),
        (fault("lost-stores"), r"^GPU 0 -> GPU 1: store: .* lost", LIMITED),
        (fault("private-mirror"), r"^GPU 0 -> GPU 1: store: .* mirror", LIMITED),
        (fault("alias", engine="copy", at=16 << 20), r"^GPU 0 -> GPU 1: copy-pu", NOT_PROVEN),
        (fault("stale", engine="copy"), r"^GPU 0 -> GPU 1: copy-pu", NOT_PROVEN),
        (fault("late", engine="store"), r"^GPU 0 -> GPU 1: store: .* late", LIMITED),
        (fault("no-peer"), r"^GPU 0 -> GPU 1: .*cannot access", NOT_PROVEN),
        (fault("refuse"), r"^GPU 0 -> GPU 1: .*CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", NOT_PROVEN),
    ]

    def test_each(self):
        for number, (row, pattern, code) in enumerate(self.TABLE):
            for mode in self.MODES[number % 3:number % 3 + 1] if SAMPLED else self.MODES:
                with self.subTest(row["kind"], engine=row.get("engine"), mode=mode):
                    report = self.report(machine(2, faults=[row]), *mode, code=code)
                    self.assertTrue(any(re.search(pattern, line) for line in self.fails(report)), self.fails(report))
                    self.assertFalse(any(line.startswith("GPU 1 -> GPU 0: copy-pu") for line in self.fails(report)), self.fails(report))
                    judgement = report["judgement"]
                    self.assertEqual((judgement["proven"], judgement["limited"]), (False, code == LIMITED))
                    self.assertEqual(any(one["fit"] == "fit" for one in judgement["fit"]), code == LIMITED, judgement["fit"])

    def test_all_ones_in_place_of_pointers(self):
        """As where an IOMMU translates: what would follow them is not run, and everything else is told."""
        report = self.report(machine(2, faults=[{"kind": "dead-direction"}]), code=NOT_PROVEN)
        for pair in report["pairs"]:
            self.assertIsNone(pair["chase_ns"])
            self.assertIn("pointers", pair["not_run"]["chase"])
            self.assertAlmostEqual(pair["staged_gb_s"]["median"], 18, delta=0.3)
        self.assertEqual({(w["from"], w["to"]) for w in report["wrong"]}, {(0, 1), (1, 0)})

    def test_the_wrong_byte_is_named(self):
        """A copy starts at its own pointer: byte 700 of every copy that has one."""
        report = self.report(machine(2, faults=[fault("wrong-byte", engine="copy", at=700)]), "--quick", code=NOT_PROVEN)
        self.assertEqual({(w["from"], w["to"], w["offset"]) for w in report["wrong"] if w["test"].startswith("copy-pu")}, {(0, 1, 700)})

    def test_misroute(self):
        report = self.report(machine(3, faults=[fault("misroute", engine="copy", other=2)]), "--quick", code=NOT_PROVEN)
        self.assertTrue(any(w["test"] == "copy-push" and (w["from"], w["to"]) == (0, 1) for w in report["wrong"]), report["wrong"])

    def test_impossible_rate(self):
        description = machine(2, gpu_addresses(TWO), faults=[fault("fast", engine="copy")], link=LINK | {"gb_s": 13})
        report = self.report(description, root=BUILD / "machines" / TWO, code=NOT_PROVEN)
        self.assertTrue(any("faster than the link" in line for line in self.fails(report)), self.fails(report))

    def test_slow(self):
        description = machine(2, gpu_addresses(TWO), faults=[fault("slow", engine="copy")], link=LINK | {"gb_s": 13})
        report = self.report(description, root=BUILD / "machines" / TWO, code=NOT_PROVEN)
        self.assertTrue(any(re.search(r"GPU 0 -> GPU 1: .* GB/s is \d+ % of", line) for line in self.fails(report)), self.fails(report))

    def test_hang(self):
        begin = time.monotonic()
        report = self.report(machine(2, faults=[fault("hang", engine="copy")]), "--quick", "--deadline", "3", code=NOT_PROVEN)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertRegex(self.fails(report)[0], r"^GPU 0 -> GPU 1: hung at copy-push .* did not answer within 3 s; under way: bytes")

    def test_hang_keeps_what_was_found(self):
        """Without a deadline: 10 s, since there is little data. Stores begin after copies are proven."""
        begin = time.monotonic()
        report = self.report(machine(2, faults=[{"kind": "hang", "engine": "store", "from": 1, "to": 0}]), code=NOT_PROVEN)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertRegex(self.fails(report)[0], r"^GPU 1 -> GPU 0: hung at store .* did not answer within 10\.1 s; under way: bytes")
        self.assertEqual(len(report["gpus"]), 2)
        self.assertTrue(all(pair["staged_gb_s"] for pair in report["pairs"]))

    def test_hang_with_a_reason(self):
        description = machine(2, faults=[fault("xid", engine="copy"), fault("hang", engine="store")], kernel_log=str(self.kernel_log()))
        report = self.report(description, "--quick", "--deadline", "3", root=self.scratch / "root", code=NOT_PROVEN)
        self.assertTrue(any(re.search(r"hung at store .* under way: bytes", line) for line in self.fails(report)), self.fails(report))
        self.assertTrue(any("Xid" in line for line in report["kernel_log"]), report["kernel_log"])

    def test_xid(self):
        log = self.kernel_log()
        report = self.report(machine(2, faults=[fault("xid")], kernel_log=str(log)), "--quick", root=self.scratch / "root", code=NOT_PROVEN)
        self.assertEqual(len(report["kernel_log"]), 1)
        self.assertTrue(any("Xid" in line for line in self.fails(report)))

    def test_a_users_crash_is_no_fault(self):
        """The kernel prints the name of a crashing program's file, line breaks included: here of nobody's, on this host."""
        line = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus."
        program = self.scratch / f"a\n{line}"
        program.write_bytes(CRASH)
        program.chmod(0o755)
        self.scratch.chmod(0o755)
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            self.skipTest(f"/dev/kmsg: {error.strerror}")
        self.addCleanup(os.close, log)
        os.lseek(log, 0, os.SEEK_END)
        ended = threading.Event()

        def crash():
            user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
            while not ended.wait(0.05):
                subprocess.run([program], cwd="/", **user)

        crashing = threading.Thread(target=crash)
        crashing.start()
        try:
            report = self.report(machine(2), "--quick")
        finally:
            ended.set()
            crashing.join()
        said = self.records(log)
        if not any(line in record for record in said):
            self.skipTest("this kernel does not print crashes (debug.exception-trace)")
        self.assertEqual((report["judgement"]["proven"], report["kernel_log"]), (True, []))

    @staticmethod
    def records(log):
        """What /dev/kmsg has given since `log` was opened."""
        found = []
        while True:
            try:
                found.append(os.read(log, 16384).decode(errors="replace"))
            except BlockingIOError:
                return found

    def test_atomics(self):
        description = machine(2, faults=[fault("atomics-wrong")])
        for device in description["devices"]:
            device["atomics"] = True
        report = self.report(description, "--full")
        self.assertEqual({(a["from"], a["to"]): a["exact"] for a in report["atomics"]}[(0, 1)], False)
        report = self.report(description, "--full", "--for", "nccl,atomics", code=LIMITED)
        self.assertTrue(self.fails(report))


class Uses(Case):
    """--for: what has to work, and what a machine is fit for all the same."""

    LAST = {"atomics": "not_tested", "managed-memory": "not_tested", "compressible-memory": "not_tested"}

    def fit(self, report):
        return {one["use"]: one["fit"] for one in report["judgement"]["fit"]}

    def test_a_clean_machine(self):
        report = self.report(machine(2))
        self.assertEqual(report["wanted"], ["nccl", "custom-all-reduce"])
        self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "fit", "custom-all-reduce": "fit"} | self.LAST)

    def test_reads_wrong_writes_right(self):
        """What is not asked for is a warning."""
        description = machine(2, faults=[fault("wrong-byte", engine="load", at=5000)])
        for wanted, code in (("nccl", PROVEN), ("copies,nccl", PROVEN), ("custom-all-reduce", LIMITED), ("nccl,custom-all-reduce", LIMITED), (None, LIMITED)):
            for mode in ("--quick",) if SAMPLED and code == LIMITED else ("--quick", "--full"):
                with self.subTest(wanted, mode=mode):
                    report = self.report(description, mode, *(["--for", wanted] if wanted else []), code=code)
                    self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "fit", "custom-all-reduce": "unfit"} | self.LAST)
                    grades = {r["grade"] for r in report["judgement"]["remarks"] if r["transfer"].startswith("load")}
                    self.assertEqual(grades, {"warn" if code == PROVEN else "fail"})
                    if code == LIMITED:
                        self.assertRegex(report["judgement"]["summary"], "^fit for copies, nccl; not for custom-all-reduce; not tested for atomics, managed-memory, compressible-memory: GPU 0 -> GPU 1: load")
        text = self.bench(description, "--quick", code=LIMITED).stdout
        self.assertRegex(text, r"^fit for copies, nccl; not for custom-all-reduce")

    def test_stores_lost(self):
        report = self.report(machine(2, faults=[fault("lost-stores")]), "--quick", "--for", "copies")
        self.assertEqual(self.fit(report), {"copies": "fit", "nccl": "unfit", "custom-all-reduce": "unfit"} | self.LAST)

    def test_what_was_not_tested(self):
        """A quick run tests no atomics, and does not count that against the machine."""
        self.assertEqual(self.fit(self.report(machine(2), "--quick", "--for", "atomics"))["atomics"], "not_tested")
        report = self.report(machine(2), "--full", "--for", "atomics", code=LIMITED)
        self.assertTrue(any("atomics was not tested: not supported" in line for line in self.fails(report)), self.fails(report))

    def test_bad_words(self):
        for words in ("nvshmem", "nccl,nvshmem", "NCCL", ""):
            with self.subTest(words):
                done = self.bench(machine(2), "--quick", "--for", words, code=ERROR)
                self.assertRegex(done.stderr, r"^p2p-bench: --for: .* is not a use of P2P; known: copies, nccl, custom-all-reduce, atomics, managed-memory, compressible-memory$")
                self.assertEqual(done.stdout, "")


class Excluded(Case):
    """--exclude: on a host of three GPUs, which the simulated driver and NVML read off a tree."""

    VERSION = "570.148.08"

    def setUp(self):
        super().setUp()
        self.host, libraries = self.scratch / "host", self.scratch / "lib"
        libraries.mkdir()
        for name in ("libcuda", "libnvidia-ml"):  # which tells the driver's version by its name
            shutil.copy((BUILD / f"sim/{name}.so.1").resolve(), libraries / f"{name}.so.{self.VERSION}")
            (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{self.VERSION}")
        self.variables = {"LD_LIBRARY_PATH": str(libraries), "P2PD_SIM_ROOT": str(self.host)}
        for number in (1, 2, 3):
            self.function(f"0000:00:0{number}.0", 0x1022, 0x1483, 0x060400)
            self.function(f"0000:00:0{number}.0/0000:0{number}:00.0", 0x10de, 0x2684, 0x030000)
        self.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.VERSION}  Release Build\n")
        self.write("proc/driver/nvidia/params", 'RegistryDwords: ""\n')
        self.write("proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n")
        self.write("dev/nvidiactl", "p2p 0x11\n")

    def write(self, name, text):
        path = self.host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def function(self, way, vendor, device, kind):
        """A PCI function below its port, with 16 lanes of 16 GT/s; a GPU is one of the nvidia module, BAR1 covers its VRAM."""
        folder, address, bridge = f"sys/devices/pci0000:00/{way}", way[-12:], kind == 0x060400
        config = bytearray(4096)
        for at, form, value in ((0x00, "<HH", (vendor, device)), (0x06, "<H", (0x10,)), (0x0a, "<H", (kind >> 8,)), (0x0e, "<B", (int(bridge),)),
                                (0x34, "<B", (0x40,)), (0x40, "<HH", (0x10, 0x42 if bridge else 0x02)), (0x48, "<H", (1 << 5,)),
                                (0x4c, "<I", (0x104,)), (0x52, "<H", (0x104,))):
            struct.pack_into(form, config, at, *value)
        if bridge:
            config[0x19] = config[0x1a] = int(address[8:10])
        self.write(f"{folder}/config", bytes(config))
        lines = {"vendor": hex(vendor), "device": hex(device), "subsystem_vendor": hex(vendor), "subsystem_device": hex(device), "class": hex(kind),
                 "numa_node": "0", "resource": "", "current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe",
                 "current_link_width": "16", "max_link_width": "16"}
        if not bridge:
            number = int(address[5:7], 16)
            lines["resource"] = f"0xf0000000 0xf0ffffff 0x0\n0x{number << 40:x} 0x{(number << 40) + (32 << 30) - 1:x} 0x14220c"
            (self.host / folder / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
            self.write(f"proc/driver/nvidia/gpus/{address}/information",
                       f"Model: \t\t NVIDIA GeForce RTX 4090\nGPU UUID: \t GPU-00000000-0000-0000-0000-{number:012x}\n")
        for name, text in lines.items():
            self.write(f"{folder}/{name}", text + "\n")
        link = self.host / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../../devices/pci0000:00/{way}")

    def run_on_host(self, *options, code=PROVEN):
        command = [BENCH, "--json", "--quick", "--root", self.host, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": os.environ["PATH"]} | self.variables,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_by_address(self):
        three = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
        for options, left in (((), three), (("--exclude", three[1]), [three[0], three[2]]), (("--exclude", three[0]), three[1:])):
            with self.subTest(options):
                report = self.run_on_host(*options)
                self.assertEqual([gpu["address"] for gpu in report["gpus"]], left)
                self.assertEqual(len(report["pairs"]), len(left) * (len(left) - 1))
                self.assertTrue(all(path["payload_gb_s"] > 20 for i, row in enumerate(report["paths"]) for j, path in enumerate(row) if i != j))

    def test_nccl(self):
        """It gets no GPU that is left out, and somebody's settings are overridden."""
        self.write("etc/nccl.conf", "# mine\nNCCL_P2P_LEVEL=PIX\nNCCL_P2P_DISABLE=1\n")
        library = "--collectives", "--nccl", SIMULATED_NCCL
        nccl = self.run_on_host(*library)["collectives"]
        self.assertEqual((len(nccl["pairs"]), set(nccl["pairs"].values()), nccl["p2p_level"]), (6, {"P2P/CUMEM"}, "PHB"))
        self.assertEqual(nccl["notes"], ["/etc/nccl.conf line 2 is overridden here: NCCL_P2P_LEVEL=PIX",
                                         "/etc/nccl.conf line 3 is overridden here: NCCL_P2P_DISABLE=1"])
        nccl = self.run_on_host(*library, "--exclude", "0000:01:00.0")["collectives"]
        self.assertEqual(list(nccl["pairs"]), ["GPU 0 -> GPU 1", "GPU 1 -> GPU 0"])

    def test_a_bad_card_of_three(self):
        """Its faults are those of the second, as numbered before one was left out."""
        self.write("etc/driver-world/quirks.json", json.dumps({"patience": 1, "faults": [{"kind": "dead-direction", "from": 1}, {"kind": "dead-direction", "to": 1}]}))
        self.run_on_host(code=NOT_PROVEN)
        self.run_on_host("--exclude", "0000:02:00.0")
        self.run_on_host("--exclude", "0000:01:00.0", code=NOT_PROVEN)

    def test_too_few_are_left(self):
        report = self.run_on_host("--exclude", "0000:01:00.0,0000:03:00.0", code=NOTHING)
        self.assertIn("there is one GPU", json.dumps(report))

    def test_without_nvml(self):
        """CUDA leaves GPUs out by their UUIDs, which NVML tells."""
        done = self.bench(machine(3), "--quick", "--exclude", "0000:01:00.0", code=NOTHING)
        self.assertRegex(done.stderr, "^p2p-bench: no GPU can be left out: NVML names none")


class Unfit(Case):
    """One clear line each."""

    def one_line(self, done, code, pattern):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        text = (done.stdout + done.stderr).strip().splitlines()
        self.assertRegex(text[0], pattern)
        self.assertLessEqual(len(text), 2, text)

    def test_without_a_driver(self):
        done = subprocess.run([BENCH], capture_output=True, text=True, timeout=60, env={"LD_LIBRARY_PATH": "/nonexistent"}, stdin=subprocess.DEVNULL)
        if "no CUDA driver" not in done.stderr:
            self.skipTest("this machine has a CUDA driver")
        self.one_line(done, NOTHING, "^p2p-bench: no CUDA driver")

    def test_errors_of_the_driver(self):
        for number, name, cause, fix in (
                (803, "SYSTEM_DRIVER_MISMATCH", ": libraries and loaded kernel module are of different versions", "Reboot; if it stays, install"),
                (802, "SYSTEM_NOT_READY", "$", "systemctl start nvidia-fabricmanager"), (100, "NO_DEVICE", "$", "p2pctl doctor")):
            with self.subTest(number):
                done = self.bench(machine(2, init_error=number))
                self.one_line(done, ERROR, f"the CUDA driver does not start: CUDA_ERROR_{name}{cause}")
                self.assertIn(fix, done.stderr)

    def test_one_gpu(self):
        self.one_line(self.bench(machine(1)), NOTHING, "^there is one GPU")

    def test_prohibited(self):
        description = machine(2)
        description["devices"][1]["compute_mode"] = 2
        self.one_line(self.bench(description), NOTHING, "GPU 1 is in compute mode \"prohibited\"")

    def test_no_memory(self):
        description = machine(2)
        description["devices"][0]["free_mib"] = 20
        self.one_line(self.bench(description), ERROR, "GPU 0: only 20 MiB of its memory are free")

    def test_old_driver_takes_the_kernels(self):
        self.report(machine(2, ptx_isa_most="8.4"), "--quick")

    def test_options(self):
        for options, pattern in ((["--thresholds", "{"], "--thresholds"), (["--thresholds", '{"chase": 1}'], 'unknown threshold "chase"'),
                                 (["--fault", "rain"], "rain"), (["--deadline", "0"], "deadline"), (["--root", "/nonexistent"], "No such file")):
            with self.subTest(options):
                done = self.bench(machine(2), *options, code=ERROR)
                self.assertRegex(done.stdout + done.stderr, pattern)
        self.assertEqual(self.bench(machine(2), "--quick", "--save", "/nonexistent/file").returncode, ERROR)


if __name__ == "__main__":
    unittest.main()
