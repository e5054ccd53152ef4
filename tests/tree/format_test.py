#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every file of C++ and CUDA is as clang-format 14, Debian 12's, writes it; another version formats otherwise, and is not used."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "14"


def unformatted(*files, text=None):
    """Names of files that clang-format would change; with `text`, of standard input."""
    done = subprocess.run(["clang-format", "--dry-run", "--style=file", *files], cwd=ROOT, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"clang-format: {done.stderr.strip()}")
    return sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning:", done.stderr, re.M)))


def main():
    try:
        said = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        said = "clang-format is not installed"
    if not re.search(rf"version {VERSION}\.", said):
        print(f"skipped: {said.strip()}")
        return 77
    if not unformatted("--assume-filename=daemon/seed.cpp", text="int  main( ){return 0 ;}\n"):
        print("clang-format passes a file that is not formatted")
        return 1
    files = subprocess.run(["git", "ls-files", "*.cpp", "*.hpp", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    bad = [name for start in range(0, len(files), 50) for name in unformatted(*files[start:start + 50])]
    for name in bad:
        print(f"{name}: not formatted: clang-format -i {name}")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
