#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A virtual machine's own time, its accelerators, and its firmware's variables (tests/vm): without a machine."""
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
import cuts  # noqa: E402
import uefi  # noqa: E402
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


class Variables(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_own_keys(self):
        store = self.folder / "variables"
        head = bytes(48) + struct.pack("<H", 72) + bytes(22) + uefi.STORE_HEADER.pack(uefi.STORE.bytes_le, 4096, 0x5A, 0xFE, 0, 0)
        store.write_bytes(head.ljust(72 + 4096, b"\xff"))
        uefi.enrol_own(store, b"owner", b"driver")
        text, at, found = store.read_bytes(), len(head), {}
        while at < uefi.end_of_variables(text, len(head)):
            *_, name_size, data_size, vendor = uefi.HEADER.unpack_from(text, at)
            name = text[at + uefi.HEADER.size:][:name_size].decode("utf-16-le")
            found[name] = (uefi.HEADER.unpack_from(text, at)[3], vendor, text[at + uefi.HEADER.size + name_size:][:data_size])
            at = uefi.aligned(at + uefi.HEADER.size + name_size + data_size)
        self.assertEqual(list(found), ["PK\0", "KEK\0", "db\0"])
        self.assertEqual({attributes for attributes, *_ in found.values()}, {0x27}, "the firmware reads no others")
        self.assertEqual(found["db\0"][1:], (uefi.IMAGES.bytes_le, uefi.signatures(b"owner") + uefi.signatures(b"driver")))
        self.assertEqual(len(uefi.signatures(b"owner")), struct.unpack_from("<I", uefi.signatures(b"owner"), 16)[0])

    def test_those_of_a_power_cut(self):
        log = types.SimpleNamespace(entries=[types.SimpleNamespace(at=offset) for offset in (1024, 5000, 9000)])
        self.assertIsNone(cuts.variables_at(self.folder, log, 1), "a BIOS has none")
        for length in (0, 4608, 8000):
            (self.folder / f"variables.{length}").touch()
        (self.folder / "writes").write_bytes(bytes(10000))
        self.assertEqual([cuts.variables_at(self.folder, log, at).name for at in range(4)],
                         ["variables.0", "variables.4608", "variables.8000", "variables.8000"])


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
