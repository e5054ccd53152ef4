// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/probe.hpp"
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kPackageActivity;
}

using namespace p2pd;

namespace {

struct Machine : test::MadeTree {
  Result<Finding> look() { return kPackageActivity.check(host, Parameters::object()); }
  Finding fails() {
    const Finding finding = look().value();
    CHECK(finding.verdict == Verdict::fail);
    CHECK(finding.next.find("Wait") == 0);
    return finding;
  }
  /// A line of /proc/locks for `path`, as the kernel prints it.
  std::string lock_of(const std::string& path, const std::string& kind = "POSIX  ADVISORY  WRITE") const {
    struct stat info {};
    REQUIRE(::stat((directory / path).c_str(), &info) == 0);
    return fmt::format("{} 4711 {:02x}:{:02x}:{} 0 EOF\n", kind, ::major(info.st_dev), ::minor(info.st_dev),
                       info.st_ino);
  }
};

}  // namespace

TEST_CASE("package-activity: at rest passes, by files alone") {
  Machine machine;
  machine.put("run/cloud-init/result.json");
  machine.put("var/lib/snapd/state.json", R"({"data":{"seeded": true}})");
  machine.put("proc/locks", "1: POSIX  ADVISORY  WRITE 7 00:01:1 0 EOF\n");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["busy"] == nlohmann::json::array());
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("package-activity: locks are held by who is in the table, not by files") {
  Machine machine;
  for (const char* path : {"var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock"}) machine.put(path, "");
  machine.put("proc/4711/comm", "apt-get\n");
  const std::string lists = machine.lock_of("var/lib/apt/lists/lock");
  SECTION("nobody") {
    machine.put("proc/locks", "");
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("the lists") {
    machine.put("proc/locks", "1: FLOCK  ADVISORY  WRITE 1 00:05:1 0 EOF\n2: " + lists);
    CHECK(machine.fails().summary ==
          "packages are being installed now: process 4711 apt-get holds /var/lib/apt/lists/lock");
  }
  SECTION("one who waits") {
    machine.put("proc/locks", "1: " + machine.lock_of("var/lib/apt/lists/lock", "-> POSIX  ADVISORY  WRITE"));
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("lines that are none") {
    machine.put("proc/locks",
                "\n:\n1: POSIX\n1: POSIX ADVISORY WRITE x y:z:q\n" + std::string(5000, 'a') + "\n2: " + lists);
    CHECK(machine.look()->verdict == Verdict::fail);
  }
  SECTION("no table") { CHECK(machine.look()->verdict == Verdict::pass); }
}

TEST_CASE("package-activity: what installs in the background fails") {
  Machine machine;
  SECTION("cloud-init") {
    machine.put("run/cloud-init/status.json");
    CHECK(machine.fails().facts["busy"] == nlohmann::json::array({"cloud-init"}));
    machine.put("run/cloud-init/disabled");
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("apt-daily") {
    machine.put("sys/fs/cgroup/system.slice/apt-daily-upgrade.service/cgroup.procs");
    CHECK(machine.fails().summary.find("apt-daily-upgrade.service") == 0);
  }
  SECTION("snapd that has not seeded") {
    machine.put("var/lib/snapd/state.json", R"({"data":{"seeded":false}})");
    CHECK(machine.look()->verdict == Verdict::pass);  // it has nothing to seed
    machine.put("var/lib/snapd/seed/seed.yaml");
    CHECK(machine.fails().facts["busy"] == nlohmann::json::array({"snapd"}));
    machine.put("var/lib/snapd/state.json", "\"seeded\"");
    CHECK(machine.fails().summary.starts_with("snapd is still running"));
  }
}
