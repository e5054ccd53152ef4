#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A virtual machine's own time, and its accelerators (tests/vm/guest.py): without a machine."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
from guest import Guest, GuestError, accelerators, waited_s  # noqa: E402


class Accelerators(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.device, self.able, self.unable = (self.folder / name for name in ("kvm", "able", "unable"))
        self.device.touch()
        self.able.write_text("processor\t: 0\nflags\t\t: fpu vme svm sse\n")
        self.unable.write_text("processor\t: 0\nflags\t\t: fpu vme sse\nbugs\t\t: svm\n")

    def test_kvm_is_used_where_it_may_be(self):
        words = accelerators(self.device, self.able)
        self.assertEqual(words[:2], ["-accel", "kvm"])
        self.assertIn("tcg,thread=multi,tb-size=512", words, "QEMU goes on without, where the host says no")
        self.assertNotIn("kvm", accelerators(self.folder / "none", self.able))

    def test_kvm_of_a_processor_that_cannot_virtualize_hangs(self):
        self.assertNotIn("kvm", accelerators(self.device, self.unable))

    @unittest.skipUnless(shutil.which("qemu-system-x86_64"), "SKIP: no QEMU")
    def test_qemu_takes_what_there_is(self):
        for device in ("none", "kvm"):
            with self.subTest(device):
                done = subprocess.run(["qemu-system-x86_64", *accelerators(self.folder / device, self.able), "-machine", "none", "-nographic", "-monitor", "stdio"],
                                      input="quit\n", capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)


class OwnTime(unittest.TestCase):
    def test_a_process_that_has_to_wait(self):
        busy = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
        pair = [subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", busy]) for _ in range(2)]
        time.sleep(2)
        waits = [waited_s(process) for process in pair]
        for process in pair:
            process.wait()
        self.assertGreater(sum(waits), 0.5, "two on one processor: one of them waits at any time")

    def test_no_time_passes_while_it_waits(self):
        guest = Guest("/nonexistent")
        was = guest.now()
        guest.lost_s += 100
        self.assertLess(guest.now(), was - 90)

    def test_until(self):
        guest = Guest("/nonexistent")
        guest.check_alive = lambda: None
        values = iter([None, 0, "found"])
        self.assertEqual(guest.until(lambda: next(values), "nothing", 60, 0), "found")
        with self.assertRaisesRegex(GuestError, "nothing comes in 0 s"):
            guest.until(lambda: False, "nothing comes", 0, 0.01)


if __name__ == "__main__":
    unittest.main()
