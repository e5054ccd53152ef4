#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tree keeps the rules of layout_rules.py.

Seeded breaches in a temporary copy show that each rule finds them.
"""
import pathlib
import re
import shutil
import tempfile
import unittest

from layout_rules import (BUDGET, NOT_DONE, NOT_HERE, ROOT, SPDX, all_breaches, callback_breaches, cmake_breaches, fits, include_breaches,
                          layers, room_graph, room_of, text, tracked, try_breaches, unit_breaches, word_breaches)

TOP = {"CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "README.md", "actions", "config", "daemon", "packaging",
       "probes", "tests", "units"}
TOP_HIDDEN = {".ci", ".clang-format", ".clang-tidy", ".gitattributes", ".github", ".gitignore", ".pre-commit-config.yaml"}

# file, a line appended to it, text of the breach
INCLUDE_SEEDS = [
    ("daemon/base/root.cpp", '#include "plan/plan.hpp"', "may include nothing of other rooms"),
    ("daemon/base/root.cpp", '#include "machine/boot/mounts.hpp"', "may include nothing of other rooms"),
    ("daemon/machine/boot/kernels.cpp", '#include "machine/packages/apt.hpp"', "may include base"),
    ("daemon/machine/packages/apt.cpp", '#include "machine/driver/solver.hpp"', "may include base, machine/catalogue, machine/boot, machine/modules"),
    ("daemon/report/page.cpp", '#include "ctl/verb.hpp"', "may include base"),
    ("daemon/base/host.hpp", "#include <pci/pci.h>", "only in daemon/machine/hardware/pci.cpp"),
    ("daemon/plan/plan.cpp", '#include "engine/walk.hpp"', "may include base"),
    ("daemon/engine/walk.cpp", '#include "probes/registry.hpp"', "may include base"),
    ("daemon/engine/walk.cpp", '#include "screen/print.hpp"', "may include base"),
    ("daemon/engine/walk.cpp", "#include <sqlite3.h>", "only in daemon/engine/journal.cpp"),
    ("daemon/engine/journal.cpp", "#include <openssl/evp.h>", "only in daemon/base/sha256.cpp"),
    ("daemon/engine/journal.cpp", "#include <yaml-cpp/yaml.h>", "only in daemon/base/yaml.*"),
    ("daemon/ctl/doctor.cpp", '#include "probes/registry.hpp"', "may include base"),
    ("daemon/ctl/doctor.cpp", "#include <cuda.h>", "only in probes/bench/*"),
    ("daemon/machine/fetch/download.cpp", "#include <curl/curl.h>", "a library without a row"),
    ("daemon/p2pctl.cpp", "#include <boost/asio.hpp>", "a library without a row"),
    ("probes/gpu_inventory.cpp", '#include "engine/journal.hpp"', "may include base"),
    ("probes/gpu_inventory.cpp", '#include "actions/registry.hpp"', "may include base"),
    ("probes/gpu_inventory.cpp", '#include "kernel_cmdline.hpp"', "may include base"),
    ("probes/gpu_inventory.cpp", "#  include <systemd/sd-bus.h>", "only in daemon/bus/*, daemon/ctl/*"),
    ("actions/kernel_cmdline.cpp", '#include "../probes/registry.hpp"', "may include base"),
    ("actions/kernel_cmdline.cpp", "#include <catch2/catch.hpp>", "only in tests/"),
]

# file, old text, new text, text of the breach
OTHER_SEEDS = [
    ("probes/gpu_inventory.cpp", '"gpu-inventory"', '"gpu-count"', "expected one Probe called"),
    ("probes/gpu_inventory.cpp", "// gpu-inventory:", "// Counts:", "does not open with"),
    ("probes/gpu_inventory.cpp", SPDX, "", "no \"SPDX"),
    ("daemon/p2pctl.cpp", "int main", "// " + NOT_DONE[0] + ": later\nint main", NOT_DONE[0]),
    ("daemon/p2pctl.cpp", "int main", "S s{a, TRY(b())};\nint main", "TRY in a braced list leaks"),
    ("probes/bench/CMakeLists.txt", "report/judge.cpp", "report/judges.cpp", "report/judges.cpp, which is not there"),
    ("probes/bench/CMakeLists.txt", "report/judge.cpp", "", "report/judge.cpp: no CMakeLists.txt names it"),
    ("daemon/bus/manager.cpp", "guarded<Handlers::report>", "Handlers::report", "SD_BUS_METHOD_WITH_ARGS without guarded<>"),
    ("daemon/bus/requests.cpp", "guarded<replied>", "replied", "sd_bus_call_async without guarded<>"),
    ("daemon/p2pctl.cpp", "int main", "// see " + NOT_HERE[0] + "x\nint main", NOT_HERE[0]),
]


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.names = tracked(ROOT)

    def same(self, breaches):
        self.assertFalse(breaches, "\n" + "\n".join(breaches))

    def test_top_level(self):
        top = {name.split("/")[0] for name in self.names}
        self.assertEqual(top - TOP_HIDDEN, TOP)

    def test_nothing_made_is_tracked(self):
        self.assertEqual([name for name in self.names if fits(name, ["tests/machines/*/machine.json", "tests/golden/*/*"])], [])

    def test_includes(self):
        self.same(include_breaches(ROOT, self.names))

    def test_rooms(self):
        """Prints which room uses which, from the left to the right."""
        graph = room_graph(ROOT, self.names)
        rows, cycle = layers(graph)
        self.assertEqual(cycle, {}, "a cycle")
        for room in (room for row in rows for room in row):
            lines = sum(text(ROOT, n).count("\n") for n in self.names if room_of(n)[0] == room and n.endswith((".cpp", ".hpp", ".cu", ".cuh", ".h")))
            print(f"{room:24}{lines:>6}  {', '.join(sorted(graph[room]))}")
            if room != "tests":
                self.assertLessEqual(lines, BUDGET[room], f"{room} is over its budget (layout_rules.py): make it smaller, or write down why it cannot be")

    def test_probes_and_actions(self):
        self.same(unit_breaches(ROOT, "probes", "Probe") + unit_breaches(ROOT, "actions", "Action"))

    def test_cmake_lists(self):
        self.same(cmake_breaches(ROOT, self.names))

    def test_try(self):
        self.same(try_breaches(ROOT, self.names))

    def test_callbacks(self):
        self.same(callback_breaches(ROOT, self.names))

    def test_words(self):
        self.same(word_breaches(ROOT, self.names))


class Seeded(unittest.TestCase):
    """Every rule finds a breach put into a copy of the tree, and nothing else."""

    def setUp(self):
        self.copy = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-layout-"))
        self.addCleanup(shutil.rmtree, self.copy)
        self.names = [n for n in tracked(ROOT) if n.startswith(("daemon/", "probes/", "actions/"))]
        for name in self.names:
            (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.copy / name)
        self.before = all_breaches(self.copy, self.names)

    def new_breaches(self, name, content):
        file = self.copy / name
        whole = file.read_text()
        self.assertNotEqual(whole, content, "the seed did not take")
        file.write_text(content)
        found = [b for b in all_breaches(self.copy, self.names, name) if b not in self.before]
        file.write_text(whole)
        return found

    def test_includes(self):
        for name, line, why in INCLUDE_SEEDS:
            with self.subTest(f"{name}: {line}"):
                found = self.new_breaches(name, text(self.copy, name) + line + "\n")
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"^{re.escape(name)}:\d+: .*: {re.escape(why)}")

    def test_a_cycle(self):
        (self.copy / "daemon/machine/boot/kernels.hpp").write_text('#include "machine/modules/toolchain.hpp"\n')
        _, cycle = layers(room_graph(self.copy, self.names))
        self.assertIn("daemon/machine/modules", cycle)

    def test_others(self):
        for name, old, new, why in OTHER_SEEDS:
            with self.subTest(f"{name}: {old} -> {new}"):
                found = self.new_breaches(name, text(self.copy, name).replace(old, new))
                self.assertTrue(any(why in breach for breach in found), found)

    def test_a_script_that_nobody_runs(self):
        lost = "probes/lost_test.py"
        (self.copy / lost).write_text(f"#!/usr/bin/env python3\n# {SPDX}\n")
        self.assertEqual(cmake_breaches(self.copy, [*self.names, lost])[-1:], [f"{lost}: no CMakeLists.txt names it"])


if __name__ == "__main__":
    unittest.main()
