#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kernels.ptx is the output of make-ptx for kernels.cu, old enough for every driver of the catalogue."""
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "probes/bench/device"
PTX = (BENCH / "kernels.ptx").read_text()
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)  # Turing to Blackwell
OLDEST = (8, 4)  # newest version that the JIT of driver 550 accepts


class Kernels(unittest.TestCase):
    def test_made_from_these_sources(self):
        sources = b"".join((BENCH / name).read_bytes() for name in ("kernels.cu", "exchange.cuh", "pattern.hpp"))
        self.assertIn(hashlib.sha256(sources).hexdigest(), PTX, "run probes/bench/device/make-ptx")

    def test_version(self):
        version = tuple(int(n) for n in re.search(r"^\.version (\d+)\.(\d+)$", PTX, re.M).groups())
        self.assertLessEqual(version, OLDEST)
        self.assertEqual(version[0], 7)
        self.assertIn("\n.target sm_75\n", PTX)

    def test_every_kernel_that_the_host_names(self):
        names = re.search(r"kNames\[kKernels\] = \{(.*?)\}", (BENCH / "gpu.cpp").read_text(), re.S)[1]
        self.assertEqual(set(re.findall(r'"(\w+)"', names)), set(re.findall(r"\.entry (\w+)\(", PTX)))

    def test_no_thread_uses_what_another_acquired_without_a_barrier(self):
        acquires = 0
        for kernel in PTX.split(".entry ")[1:]:
            waits = False  # one thread has acquired, and no barrier has shared that with the others
            for line in kernel.splitlines():
                acquires += "ld.acquire" in line
                waits = (waits or "ld.acquire" in line) and not re.search(r"\b(bar\.warp\.sync|bar\.sync|barrier\.sync)\b", line)
                data = re.search(r"\b(ld|st|red|atom)\.(?!acquire|param|shared)", line)
                self.assertFalse(waits and data, f"{kernel[:kernel.index('(')]}: {line.strip()}: needs __syncwarp() or __syncthreads()")
        self.assertGreater(acquires, 0)

    @unittest.skipUnless(shutil.which("ptxas"), "no ptxas here")
    def test_assembles(self):
        for sm in ARCHITECTURES:
            with self.subTest(sm=sm):
                subprocess.run(["ptxas", f"-arch=sm_{sm}", BENCH / "kernels.ptx", "-o", "/dev/null"], check=True)

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc here")
    def test_made_anew_is_the_same(self):
        release = re.search(r"release ([\d.]+)", subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout)[1]
        if release != "13.0":
            self.skipTest(f"nvcc {release} words the same kernels otherwise than 13.0")
        with tempfile.NamedTemporaryFile(suffix=".ptx") as made:
            subprocess.run([BENCH / "make-ptx", made.name], check=True)
            self.assertEqual(pathlib.Path(made.name).read_text(), PTX)


if __name__ == "__main__":
    unittest.main()
