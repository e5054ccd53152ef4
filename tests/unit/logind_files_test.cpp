// SPDX-License-Identifier: MIT
#include "machine/driver/logind_files.hpp"

#include "catch.hpp"
#include "made_tree.hpp"

using namespace p2pd;

TEST_CASE("logind: a shutdown that somebody has scheduled is told with its kind and time, as shutdown(8) leaves it") {
  const test::MadeTree machine;
  CHECK(scheduled_shutdown(machine.host.files()).empty());
  machine.put("run/systemd/shutdown/scheduled",
              "USEC=1790000000000000\nWARN_WALL=1\nMODE=poweroff\nUID=1000\nTTY=pts/0\n");
  CHECK(scheduled_shutdown(machine.host.files()) ==
        "somebody else has scheduled a poweroff for 2026-09-21 14:13:20 UTC (\"shutdown -c\" cancels it)");
}
