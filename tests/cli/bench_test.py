#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""p2p-bench itself on the simulated driver: a clean machine is proven; a machine on which nothing can be tested gets the reason."""
import json
import os
import shutil
import struct
import subprocess
import unittest

from bench_case import (BENCH, BUILD, EIGHT, ERROR, LINK, NOT_PROVEN, NOTHING, PART, PROVEN, SAMPLED, SIMULATED_NCCL, TWO, Case, fault,
                        gpu_addresses, machine)
from terminal import on_terminal


class DriverPeers(Case):
    def test_an_answer_or_why_there_is_none(self):
        """Also without the driver's library; with it, any answer about this host."""
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
        done = subprocess.run([BUILD / "bin/p2pctl", "bench", "--json", "--quick"], capture_output=True, text=True, timeout=60,
                              env=self.variables(machine(2)))
        self.assertEqual(done.returncode, PROVEN, done.stderr)
        self.assertEqual(json.loads(done.stdout)["mode"], "quick")

    def test_before_and_after(self):
        before, slow = self.scratch / "before.json", machine(2, link=LINK | {"gb_s": 12.9, "latency_ns": 2400})
        self.bench(slow, "--save", before, code=PROVEN)
        gain = self.report(machine(2), "--against", before)["gain"]
        self.assertRegex("\n".join(gain), r"GPU 0 -> GPU 1: copy 12\.\d.* -> 25\.\d.*x2\.0")
        before.write_text("{")
        self.assertTrue(self.report(machine(2), "--against", before)["gain"][-1])


class Screen(Case):
    """What a person sees on a terminal of 80 columns."""

    def test_tables_of_eight(self):
        done = self.bench(machine(8, gpu_addresses(EIGHT)), root=BUILD / "machines" / EIGHT, code=PROVEN, timeout=300)
        lines = done.stdout.splitlines()
        self.assertGreater(len(lines), 9 * 9)
        self.assertEqual([line for line in lines if len(line) > 80], [])

    def test_the_verdict_comes_last(self):
        code, text = on_terminal([BENCH, "--quick"], env=self.variables(machine(2)), stderr=subprocess.DEVNULL)
        self.assertEqual(code, PROVEN, text)
        self.assertRegex(text.splitlines()[-1], "proven: 2 ordered pairs")

    def test_help(self):
        text = self.bench(machine(2), "--help", code=PROVEN).stdout
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        for words in ("--soak MINUTES", "--save FILE", "--root TREE", "--deadline SECONDS", "-t,--test TEST,...", "--exclude ADDRESS,...",
                      "Examples:\n  p2p-bench ", "  130  a soak was interrupted"):
            self.assertIn(words, text)
        self.assertNotRegex(text, r"\b(TEXT|FLOAT|INT)\b|Excludes")
        by_p2pctl = subprocess.run([BUILD / "bin/p2pctl", "bench", "--help"], capture_output=True, text=True, timeout=60)
        self.assertEqual((by_p2pctl.returncode, by_p2pctl.stdout), (PROVEN, text))


class Named(Case):
    """--test: a part of the tests, which is never a proof."""

    NEEDS_NVLINK = "handshake-ll128"
    OF_THE_RUN = {"sweep": "swept_bytes", "host-memory": "host_memory", "collectives": "collectives", "atomics": "atomics"}
    FIGURES = {"staged": "staged_gb_s", "all-to-all": "busy_gb_s", "chase": "chase_ns", "ping-pong": "ping_pong_ns"}

    def listed(self):
        lines = self.bench(machine(2), "--list", code=PROVEN).stdout.splitlines()
        self.assertEqual([line for line in lines if not 20 < len(line) <= 80], [])
        return [line.split()[0] for line in lines]

    def able(self, **more):
        """A machine that every test can run on, but the sweep, which takes more memory."""
        description = machine(2)
        for device in description["devices"]:
            device.update(atomics=True, **more)
        return description

    def test_two(self):
        report = self.report(machine(2), "-t", "store-timed,copy-push", code=PART)
        self.assertEqual(report["tests"], ["copy-push", "store-timed"])
        judgement = report["judgement"]
        self.assertEqual((judgement["proven"], judgement["limited"], judgement["remarks"]), (False, False, []))
        self.assertEqual(judgement["summary"], "right in what was tested: copy-push, store-timed; not a proof")
        self.assertEqual({one["fit"] for one in judgement["fit"]}, {"not_tested"})
        for pair in report["pairs"]:
            self.assertEqual(sorted(pair["verified_bytes"]), ["copy-push", "store-timed"])
            self.assertAlmostEqual(pair["store_gb_s"]["median"], 24, delta=0.3)
            self.assertEqual({name for name in pair if name.endswith(("_gb_s", "_ns")) and pair[name]}, {"store_gb_s"})
        self.assertEqual(report["not_run"]["load"], "not requested")
        text = self.bench(machine(2), "-t", "copy-push", code=PART).stdout
        self.assertTrue(text.startswith("right in what was tested: copy-push; not a proof\n"), text)
        self.assertEqual(text.count("not requested"), 1, text)

    def test_each_alone(self):
        names = self.listed()
        self.assertEqual(len(names), len(set(names)))
        for name in names[::3] if SAMPLED else names:
            with self.subTest(name):
                able = self.able(memory_mib=2048, free_mib=1900) if name == "sweep" else self.able()
                report = self.report(able, "-t", name, *(["--nccl", SIMULATED_NCCL] if name == "collectives" else []),
                                     code=NOT_PROVEN if name == self.NEEDS_NVLINK else PART)
                found = set().union(*(pair["verified_bytes"] for pair in report["pairs"]))
                figures = {key for key in self.FIGURES.values() if report["pairs"][0][key]}
                whole = {test for test, key in self.OF_THE_RUN.items() if report[key]}
                if name == self.NEEDS_NVLINK:
                    self.assertEqual((self.fails(report), found), ([f"{name} was not tested"], set()))
                elif name in self.OF_THE_RUN:
                    self.assertEqual((found, whole), (set(), {name}))
                elif name in self.FIGURES:
                    self.assertIn(self.FIGURES[name], figures)
                    self.assertEqual((found, whole), ({"chase": {"load"}, "all-to-all": {"copy-both-timed"}}.get(name, set()), set()))
                else:
                    self.assertEqual((found - {"store-writer-reads"}, whole), ({name}, set()))

    def test_a_wrong_byte_counts_where_it_is_looked_for(self):
        """Also if no use that is wanted needs the test."""
        faulty = machine(2, faults=[fault("wrong-byte", engine="load", at=5000)])
        self.report(faulty, "-t", "store", code=PART)
        report = self.report(faulty, "-t", "load", "--for", "nccl", code=NOT_PROVEN)
        self.assertRegex(report["judgement"]["summary"], r"^not proven: GPU 0 -> GPU 1: load: \d+ wrong word")
        broken = self.able() | {"faults": [fault("atomics-wrong")]}
        self.assertRegex(self.report(broken, "-t", "atomics", code=NOT_PROVEN)["judgement"]["summary"],
                         "^not proven: GPU 0 -> GPU 1: atomics failed: the sum is ")

    def test_what_cannot_run(self):
        report = self.report(machine(2), "-t", "atomics,store", code=NOT_PROVEN)
        self.assertRegex(report["judgement"]["summary"], r"^not proven: atomics was not tested: not supported \(NS\)")

    def test_three(self):
        """All pairs at once, whose lengths come from copies that are not reported."""
        report = self.report(machine(3), "-t", "all-to-all", code=PART)
        self.assertTrue(all(pair["busy_gb_s"] and not pair["copy_gb_s"] for pair in report["pairs"]))
        self.assertGreater(report["all_to_all_gb_s"]["median"], 0)

    def test_iterations_and_buffer(self):
        report = self.report(self.able(), "-t", "copy-timed,chase,ping-pong", "-i", "5", "-b", "8", code=PART)
        for pair in report["pairs"]:
            self.assertEqual([pair[key]["repetitions"] for key in ("copy_gb_s", "chase_ns", "ping_pong_ns")], [5, 5, 5])
        self.assertEqual([gpu["arena_bytes"] for gpu in report["gpus"]], [(8 + 2 * 8) << 20] * 2)

    def test_words(self):
        done = self.bench(machine(2), "--test", "store,stores", code=ERROR)
        self.assertRegex(done.stderr, r'^p2p-bench: --test: "stores" is no test; known: copy-push, .*, collectives\n')
        for options in (["-t", ""], ["-t", "store", "--quick"], ["-t", "store", "--soak", "1"], ["-b", "3"], ["-i", "0"], ["-i", "101"]):
            with self.subTest(options):
                self.assertEqual(self.bench(machine(2), *options, code=ERROR).stdout, "")


class Excluded(Case):
    """--exclude: on a host of three GPUs, which the simulated driver and NVML read from a tree."""

    VERSION = "570.148.08"

    def setUp(self):
        super().setUp()
        self.host, libraries = self.scratch / "host", self.scratch / "lib"
        libraries.mkdir()
        for name in ("libcuda", "libnvidia-ml"):  # its file name tells the driver's version
            shutil.copy((BUILD / f"sim/{name}.so.1").resolve(), libraries / f"{name}.so.{self.VERSION}")
            (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{self.VERSION}")
        self.on_host = {"LD_LIBRARY_PATH": str(libraries), "P2PD_SIM_ROOT": str(self.host)}
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": os.environ["PATH"]} | self.on_host,
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
        """It gets no excluded GPU, and user settings are overridden."""
        self.write("etc/nccl.conf", "# mine\nNCCL_P2P_LEVEL=PIX\nNCCL_P2P_DISABLE=1\n")
        library = "--collectives", "--nccl", SIMULATED_NCCL
        nccl = self.run_on_host(*library)["collectives"]
        self.assertEqual((len(nccl["pairs"]), set(nccl["pairs"].values()), nccl["p2p_level"]), (6, {"P2P/CUMEM"}, "PHB"))
        self.assertEqual(nccl["notes"], ["/etc/nccl.conf line 2 is overridden here: NCCL_P2P_LEVEL=PIX",
                                         "/etc/nccl.conf line 3 is overridden here: NCCL_P2P_DISABLE=1"])
        nccl = self.run_on_host(*library, "--exclude", "0000:01:00.0")["collectives"]
        self.assertEqual(list(nccl["pairs"]), ["GPU 0 -> GPU 1", "GPU 1 -> GPU 0"])

    def test_a_bad_card_of_three(self):
        """Its faults are those of the second GPU, in the numbering before one was excluded."""
        self.write("etc/driver-world/quirks.json", json.dumps({"patience": 1, "faults": [{"kind": "dead-direction", "from": 1}, {"kind": "dead-direction", "to": 1}]}))
        self.run_on_host(code=NOT_PROVEN)
        self.run_on_host("--exclude", "0000:02:00.0")
        self.run_on_host("--exclude", "0000:01:00.0", code=NOT_PROVEN)

    def test_too_few_are_left(self):
        report = self.run_on_host("--exclude", "0000:01:00.0,0000:03:00.0", code=NOTHING)
        self.assertIn("there is one GPU", json.dumps(report))

    def test_without_nvml(self):
        """CUDA excludes GPUs by their UUIDs, which NVML reports."""
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
