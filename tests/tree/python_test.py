#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pyflakes has no remark on the Python of this tree: no undefined name, no import and no variable without use."""
import subprocess
import sys

from layout_rules import ROOT, tracked

PYFLAKES = ["/usr/bin/python3", "-m", "pyflakes"]  # python3-pyflakes is a module of the system's Python


def is_python(name):
    with (ROOT / name).open("rb") as file:
        first = file.readline(80)
    return name.endswith(".py") or (first.startswith(b"#!") and b"python" in first)


def main():
    if subprocess.run([*PYFLAKES, "--version"], capture_output=True).returncode != 0:
        print("skipped: python3-pyflakes is not installed")
        return 77
    if subprocess.run(PYFLAKES, input=b"print(nobody)\n", capture_output=True).returncode != 1:
        print("pyflakes passes a name that nothing defines")
        return 1
    files = [name for name in tracked(ROOT) if is_python(name)]
    return subprocess.run([*PYFLAKES, *files], cwd=ROOT).returncode if files else 1


if __name__ == "__main__":
    sys.exit(main())
