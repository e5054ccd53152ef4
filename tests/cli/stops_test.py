#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two p2pctl at once, and one that is stopped or killed, as in a download."""
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

import download_test
from cli_case import Case, P2PCTL, ROOT
from download_test import BODY, FETCH, NO_PROXY, SUM
from tree import boot, picture, write
from web import good, stall


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class OneAtATime(Case):
    def test_the_holder_of_the_lock_is_named(self):
        self.json("apply", self.plan)
        self.before = picture(self.tree)
        with open(self.state / "lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertRegex(lock.read(), r"^p2pctl apply, process \d+$")  # it has ended, and is not named as the holder
            holder = rf"python3[^ ]*, process {os.getpid()} of user 0"
            for words in (["apply", self.plan], ["revert"], ["pause"]):
                self.assert_refused(self.ctl(*words), f"another process .*{holder}")
            for words in (["status"], ["history"], ["doctor"], ["plan"]):
                self.assertNotEqual(self.ctl(*words).returncode, 1)
        self.revert_at_once()

    def revert_at_once(self):
        self.assertEqual(self.ctl("revert").returncode, 0)

    def test_two_at_once(self):
        """Starts both at the same time, several times: each succeeds or reports the other."""
        for _ in range(10):
            both = [subprocess.Popen([P2PCTL, "apply", "--yes", self.plan, "--root", self.tree], stdout=subprocess.DEVNULL,
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
        process = subprocess.Popen([P2PCTL, "apply", "--yes", self.plan, "--root", self.tree, *words], text=True,
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
            except OSError:  # it ended meanwhile, or is a kernel thread
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
        """The signal stays blocked until p2pctl checks for it."""
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


class Download(download_test.Case):
    """A fetch of a file that does not end by itself."""

    def test_a_stall_for_ever_ends(self):
        start = time.monotonic()
        self.assert_error(self.fetch(stall(BODY, 0), "stall=1"), "busy", "nothing received for 1 s")
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(len(self.web.asked), 3)

    def test_a_trickle_ends_at_the_deadline(self):
        def trickle(request):
            request.say(200, b"", Content_Length=1000)
            while not request.closing.wait(0.2):
                request.wfile.write(b"x")
        start = time.monotonic()
        self.assert_error(self.fetch(trickle, "deadline=1500"), "timeout", "not done in time")
        self.assertLess(time.monotonic() - start, 10)

    def test_stop(self):
        self.web.routes["/x"] = stall(BODY, 100_000)
        child = subprocess.Popen([FETCH, "file", self.web.url + "/x", str(self.file)], stdout=subprocess.PIPE, text=True, env=NO_PROXY)
        for _ in range(200):
            if self.part.exists() and self.part.stat().st_size >= 90_000:
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        said = json.loads(child.communicate(timeout=20)[0])
        self.assert_error(said, "interrupted", "asked to stop")
        self.assertTrue(self.part.exists())

    def started(self, *words, env=None, path="/x"):
        """Starts a fetch of `path` that has received 100,000 bytes, and waits for more."""
        self.web.routes[path] = stall(BODY, 100_000, then=good(BODY))
        url = self.web.url.replace("//", "//me:s3cret@")
        child = subprocess.Popen([FETCH, "file", url + path, str(self.file), *words], stdout=subprocess.PIPE, text=True, env={**NO_PROXY, **(env or {})})
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        for _ in range(200):
            if self.part.exists() and self.part.stat().st_size == 100_000:
                return child
            time.sleep(0.05)
        self.fail("nothing came")

    def test_killed_and_taken_up(self):
        child = self.started()
        curl = [int(pid) for pid in children_of(child.pid)]
        self.assertEqual(len(curl), 1)
        child.kill()
        child.wait()
        for _ in range(100):
            if not pathlib.Path(f"/proc/{curl[0]}").exists():
                break
            time.sleep(0.05)
        self.assertFalse(pathlib.Path(f"/proc/{curl[0]}").exists(), "curl goes on without its parent")
        self.assert_whole(self.fetch(BODY, f"sha256={SUM}"))
        self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_a_password_is_in_no_argv(self):
        child = self.started(env={"http_proxy": "http://me:s3cret@127.0.0.1:9", "no_proxy": "127.0.0.1"})
        (curl,) = children_of(child.pid)
        argv = pathlib.Path(f"/proc/{curl}/cmdline").read_bytes().split(b"\0")
        self.assertEqual(argv[:2], [b"curl", b"--disable"])
        self.assertNotIn(b"s3cret", b" ".join(argv))

    def test_a_stop_is_heard_at_once(self):
        child = self.started()
        begun = time.monotonic()
        child.send_signal(signal.SIGTERM)
        child.wait(20)
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual(self.part.stat().st_size, 100_000)


if __name__ == "__main__":
    unittest.main()
