# SPDX-License-Identifier: MIT
"""The manual pages, parsed by their mdoc macros, for tests of their content. P2PD_BUILD: whose bin/p2pctl is asked; build/dev."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS, MAN = ROOT / "units", ROOT / "units/man"
BIN = pathlib.Path(os.environ.get("P2PD_BUILD") or ROOT / "build/dev").resolve() / "bin"


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"SKIP: no {program}")


def run(*argv, **more):
    return subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True,
                          **{"text": True, "timeout": 60, **more})


@functools.cache
def page(name):
    return (MAN / name).read_text()


def part(name, section, subsection=None):
    """Lines of a section up to its first subsection, or of one of its subsections."""
    lines, inside = [], (None, None)
    for line in page(name).splitlines():
        heading = re.match(r"\.S([hs]) (.*)", line)
        if heading:
            inside = (heading[2], None) if heading[1] == "h" else (inside[0], heading[2])
        elif inside == (section, subsection):
            lines.append(line)
    if not lines:
        raise AssertionError(f"{name}: no section {section} {subsection or ''}")
    return lines


def whole(name, section):
    """Lines of a section, including its subsections."""
    lines = re.search(rf"^\.Sh {section}$(.*?)(?=^\.Sh |\Z)", page(name), re.M | re.S)[1]
    return [line for line in lines.splitlines() if not line.startswith(".Ss")]


def items(lines):
    """(head, text) of each item of the outermost lists; lists within are text."""
    found, depth = [], 0
    for line in lines:
        depth += line.startswith(".Bl")
        if line.startswith(".It ") and depth == 1:
            found.append((line[4:], []))
        elif depth and found:
            found[-1][1].append(line)
        depth -= line.startswith(".El")
    return [(head, "\n".join(text)) for head, text in found]


def keys(lines, macro="Cm"):
    """Names after `macro` in items, each with the item's text."""
    table = {}
    for head, text in items(lines):
        if head.startswith(macro + " "):
            for name in head[len(macro) + 1:].split(" , "):
                table[name.split(" ")[0]] = text
    return table


class Case(unittest.TestCase):
    def assert_within(self, some, all_, what="too much"):
        self.assertEqual(sorted(set(some) - set(all_)), [], what)
