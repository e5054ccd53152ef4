// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machine/driver/logind_files.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kShutdownInhibitors;
}

using namespace p2pd;

namespace {

struct Machine : test::MadeTree {
  void lock(const std::string& name, const std::string& what, const std::string& mode) const {
    put("run/systemd/inhibit/" + name, "# This is private data. Do not parse.\nWHAT=" + what + "\nMODE=" + mode +
                                           "\nUID=0\nPID=812\nWHO=backup\nWHY=nightly\nFIFO=/run/systemd/inhibit/" +
                                           name + ".ref\n");
  }
  Finding look() const { return kShutdownInhibitors.check(host, Parameters::object()).value(); }
};

}  // namespace

TEST_CASE("shutdown-inhibitors: only a block of a shutdown is one") {
  const Machine machine;
  CHECK(machine.look().verdict == Verdict::not_applicable);
  machine.lock("1", "sleep:handle-lid-switch", "block");
  machine.lock("2", "shutdown:sleep", "delay");
  machine.put("run/systemd/inhibit/3", "\x01\x02=\n=\nWHAT\nMODE=block");
  machine.put("run/systemd/inhibit/2.ref", "WHAT=shutdown\nMODE=block\n");
  CHECK(machine.look().verdict == Verdict::pass);
  machine.lock("4", "sleep:shutdown", "block");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.summary == "a restart is blocked by backup (process 812): nightly");
  CHECK_FALSE(finding.next.empty());
  machine.lock("4", "shutdown", "block-weak");
  CHECK(machine.look().facts["blocks"].size() == 1);
}

TEST_CASE("logind: a shutdown that somebody has scheduled is told with its kind and time, as shutdown(8) leaves it") {
  const test::MadeTree machine;
  CHECK(scheduled_shutdown(machine.host.files()).empty());
  machine.put("run/systemd/shutdown/scheduled",
              "USEC=1790000000000000\nWARN_WALL=1\nMODE=poweroff\nUID=1000\nTTY=pts/0\n");
  CHECK(scheduled_shutdown(machine.host.files()) ==
        "somebody else has scheduled a poweroff for 2026-09-21 14:13:20 UTC (\"shutdown -c\" cancels it)");
}
