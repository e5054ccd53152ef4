#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two p2pctl at once, and one that is stopped or killed."""
import fcntl
import os
import pathlib
import signal
import subprocess
import time
import unittest

from cli_case import Case, P2PCTL, ROOT
from tree import boot, picture, write


class OneAtATime(Case):
    def test_the_holder_of_the_lock_is_named(self):
        self.json("apply", self.plan)
        self.before = picture(self.tree)
        with open(self.state / "lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertRegex(lock.read(), r"^p2pctl apply, process \d+$")  # it has ended, and is not blamed
            holder = rf"python3[^ ]*, process {os.getpid()} of user 0"
            for words in (["apply", self.plan], ["revert"], ["pause"]):
                self.assert_refused(self.ctl(*words), f"another process .*{holder}")
            for words in (["status"], ["history"], ["doctor"], ["plan"]):
                self.assertNotEqual(self.ctl(*words).returncode, 1)
        self.revert_at_once()

    def revert_at_once(self):
        self.assertEqual(self.ctl("revert").returncode, 0)

    def test_two_at_once(self):
        """Both started at the same time, several times: each ends well or is told about the other."""
        for _ in range(10):
            both = [subprocess.Popen([P2PCTL, "apply", self.plan, "--root", self.tree], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True) for _ in range(2)]
            said = [process.communicate(timeout=60)[1] for process in both]
            codes = sorted(process.returncode for process in both)
            self.assertIn(codes, ([0, 0], [0, 1]), said)
            for code, text in zip((process.returncode for process in both), said):
                if code:
                    self.assertIn("another process holds the state", text)
        boot(self.tree)
        self.assertEqual(self.json("apply", self.plan)["result"], "done")
        self.revert_to_end()


TOOL = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {  // grub-mkconfig and grub-script-check of an image, as a static program
  char buffer[4096];
  size_t count;
  (void)argc;
  if (strstr(argv[0], "script-check")) return 0;
  FILE* config = fopen("/boot/grub/new.cfg", "r");
  if (!config) {
    fclose(fopen("/started", "w"));
    for (;;) pause();
  }
  while ((count = fread(buffer, 1, sizeof buffer, config)) > 0) fwrite(buffer, 1, count, stdout);
  return 0;
}
"""
MENU = """set default=0
menuentry 'Debian' --id debian {
  linux /boot/vmlinuz root=/dev/vda ro %s
  initrd /boot/initrd.img
}
"""


class Stops(Case):
    """An image whose grub-mkconfig never ends."""

    def setUp(self):
        super().setUp()
        if not ROOT:
            self.skipTest("SKIP: needs root for chroot")
        tool = self.scratch / "tool"
        made = subprocess.run(["cc", "-static", "-x", "c", "-", "-o", tool], input=TOOL, text=True, capture_output=True)
        if made.returncode != 0:
            self.skipTest("SKIP: no static C library: " + made.stderr[-200:])
        (self.tree / "machine.json").unlink()
        for name in ("grub-mkconfig", "grub-script-check"):
            write(self.tree / "usr/sbin" / name, tool.read_bytes(), 0o755)
        for name in ("vmlinuz", "initrd.img"):
            write(self.tree / "boot" / name, name)
        write(self.tree / "boot/grub/grub.cfg", MENU % "quiet", 0o444)
        self.before = picture(self.tree)

    def start(self, *words):
        process = subprocess.Popen([P2PCTL, "apply", self.plan, "--root", self.tree, *words], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 20
        while not (self.tree / "started").exists():
            self.assertLess(time.monotonic(), deadline, "grub-mkconfig was not started")
            time.sleep(0.01)
        (self.tree / "started").unlink()
        return process

    def programs_of_the_image(self):
        found = []
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            try:
                found += [link] if os.readlink(link).startswith(str(self.tree)) else []
            except OSError:  # ended meanwhile, or a kernel thread
                pass
        return found

    def finish(self):
        write(self.tree / "boot/grub/new.cfg", MENU % "quiet iommu=pt")
        self.before["boot/grub/new.cfg"] = picture(self.tree)["boot/grub/new.cfg"]
        self.apply_to_end()
        self.assertIn("iommu=pt", (self.tree / "boot/grub/grub.cfg").read_text())
        self.revert_to_end()

    def test_sigterm_in_a_fix(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start()
            process.send_signal(number)
            out, error = process.communicate(timeout=20)
            self.assertNotEqual(process.returncode, 0, out)
            self.assertRegex(error, r"\Ap2pctl: .*(stop|ended).*\n(  next: .*\n)?\Z")
            self.assertEqual(self.json("status")["state"], "walking")
        self.finish()

    def test_sigterm_between_two_steps(self):
        """The signal waits, blocked, until p2pctl looks."""
        def send():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGTERM)
        done = self.ctl("apply", self.plan, preexec_fn=send)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, r"walking  stopped between two steps.*\n next  .*p2pctl apply")
        self.assert_unchanged()
        write(self.tree / "boot/grub/new.cfg", MENU % "quiet iommu=pt")
        self.assertEqual(self.json("apply", self.plan)["state"], "rebooting")
        done = self.ctl("revert", preexec_fn=send)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"reverting  stopped between two steps.*\n next  .*p2pctl revert")
        self.assertRegex(self.ctl("apply", self.plan).stderr, "reverting cannot apply\n  next: .*p2pctl revert")
        (self.tree / "boot/grub/new.cfg").unlink()
        self.revert_to_end()

    def test_sigkill_in_a_fix(self):
        process = self.start()
        self.assertEqual(len(self.programs_of_the_image()), 1)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while self.programs_of_the_image() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.programs_of_the_image(), [])
        self.finish()

    def test_second_apply_meets_a_busy_first(self):
        process = self.start()
        done = self.ctl("apply", self.plan)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"p2pctl apply, process {process.pid}", done.stderr)
        self.assertEqual(self.json("status")["state"], "walking")
        process.terminate()
        process.wait(timeout=20)
        self.finish()


if __name__ == "__main__":
    unittest.main()
