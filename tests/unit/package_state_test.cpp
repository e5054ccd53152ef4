// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>

#include "base/probe.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kPackageState;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const std::string kLibc = "Package: libc6\nStatus: install ok installed\nVersion: 2.36\n\n";
const std::string kStatus = "var/lib/dpkg/status";

struct Machine {
  Machine() {
    put(kStatus, kLibc);
    fs::create_directories(directory / "var/lib/dpkg/updates");
  }
  void put(const std::string& path, const std::string& text = "x") const {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << text;
  }
  Result<Finding> look() { return kPackageState.check(host, Parameters::object()); }
  Finding fails() {
    const Finding finding = look().value();
    CHECK(finding.verdict == Verdict::fail);
    CHECK_FALSE(finding.next.empty());
    return finding;
  }
  /// A line of /proc/locks for `path`, as the kernel prints it.
  std::string lock_of(const std::string& path, const std::string& kind = "POSIX  ADVISORY  WRITE") const {
    struct stat info {};
    REQUIRE(::stat((directory / path).c_str(), &info) == 0);
    return fmt::format("{} 4711 {:02x}:{:02x}:{} 0 EOF\n", kind, ::major(info.st_dev), ::minor(info.st_dev),
                       info.st_ino);
  }

  test::TemporaryDirectory directory;
  test::FakeRunner runner;
  Host host{Root::open(directory.path()).value(), runner};
};

}  // namespace

TEST_CASE("package-state: pins of drivers and kernels are facts") {
  Machine machine;
  machine.put("etc/apt/preferences.d/gpu", "Package: nvidia-* libnvidia-*\nPin: version 570.*\nPin-Priority: 1001\n\n"
                                           "Package: firefox\nPin: release a=stable\nPin-Priority: 990\n");
  machine.put("etc/apt/preferences", ":\n\nPackage:linux-image-amd64\nno colon\n");
  const nlohmann::json pins = machine.look()->facts["pins"];
  REQUIRE(pins.size() == 2);
  CHECK(pins[0]["package"] == "linux-image-amd64");
  CHECK(pins[1]["package"] == "nvidia-* libnvidia-*");
  CHECK(pins[1]["pin"] == "version 570.*");
  CHECK(pins[1]["priority"] == "1001");
}

TEST_CASE("package-state: sound and at rest passes, by files alone") {
  Machine machine;
  machine.put("run/cloud-init/result.json");
  machine.put("var/lib/snapd/state.json", R"({"data":{"seeded": true}})");
  machine.put("proc/locks", "1: POSIX  ADVISORY  WRITE 7 00:01:1 0 EOF\n");
  machine.put("run/reboot-required");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary == "dpkg is sound and at rest, 1 packages; a reboot is asked for");
  CHECK(finding.facts["snapd_seeded"] == true);
  CHECK(finding.facts["locks"] == nlohmann::json::array());
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("package-state: interrupted packages and unwritten updates fail") {
  Machine machine;
  SECTION("a package") {
    machine.put(kStatus, kLibc + "Package: nvidia-dkms-550\nStatus: install ok half-configured\n");
    const Finding finding = machine.fails();
    CHECK(finding.facts["interrupted"][0]["package"] == "nvidia-dkms-550");
    CHECK(finding.next.find("dpkg --configure -a") != std::string::npos);
  }
  SECTION("an update") {
    machine.put("var/lib/dpkg/updates/0001");
    CHECK(machine.fails().facts["unwritten_updates"] == 1);
  }
  SECTION("what dpkg itself ignores there") {
    machine.put("var/lib/dpkg/updates/tmp.i");
    CHECK(machine.look()->verdict == Verdict::pass);
  }
  SECTION("while dpkg is at work, that is what is told") {
    machine.put(kStatus, kLibc + "Package: a\nStatus: install ok unpacked\n");
    machine.put("var/lib/dpkg/lock-frontend", "");
    machine.put("proc/locks", "1: " + machine.lock_of("var/lib/dpkg/lock-frontend"));
    CHECK(machine.fails().next.find("Wait") == 0);
  }
}

TEST_CASE("package-state: locks are held by who is in the table, not by files") {
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
  SECTION("no table") { CHECK(machine.look()->facts["locks"].is_null()); }
}

TEST_CASE("package-state: what installs in the background fails") {
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
    CHECK(machine.fails().facts["snapd_seeded"] == false);
  }
}

TEST_CASE("package-state: held packages and the policy of upgrades are facts") {
  Machine machine;
  machine.put(kStatus, kLibc +
                           "Package: libnvidia-compute-550\nStatus: hold ok installed\nVersion: 550.1\n\n"
                           "Package: vim\nStatus: hold ok installed\n\n"
                           "Package: unattended-upgrades\nStatus: install ok installed\n");
  machine.put("etc/apt/apt.conf.d/20auto-upgrades", "APT::Periodic::Unattended-Upgrade \"1\";\n");
  machine.put("etc/apt/apt.conf.d/50unattended-upgrades",
              "Unattended-Upgrade::Package-Blacklist {\n// \"vim\";\n \"nvidia\";\n};\n");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["held_nvidia"].dump() == R"([{"package":"libnvidia-compute-550","version":"550.1"}])");
  CHECK(finding.facts["unattended_upgrades"].dump() ==
        R"({"automatic_reboot":false,"blacklist":["nvidia"],"enabled":true,"installed":true})");
  machine.put("etc/apt/apt.conf.d/99off", "APT::Periodic::Enable \"0\";\n");
  CHECK(machine.look()->facts["unattended_upgrades"]["enabled"] == false);
}

TEST_CASE("package-state: what cannot be read is no pass, and no dpkg is no fail") {
  Machine machine;
  machine.put("etc/os-release", "ID=ubuntu\nID_LIKE=debian\n");
  SECTION("a status that is cut off") { machine.put(kStatus, kLibc + "Package: x\n"); }
  SECTION("an empty status") { machine.put(kStatus, ""); }
  SECTION("no status") { fs::remove(machine.directory / kStatus); }
  SECTION("no updates") { fs::remove(machine.directory / "var/lib/dpkg/updates"); }
  CHECK_FALSE(machine.look());
  fs::remove_all(machine.directory / "var");
  machine.put("etc/os-release", "ID=fedora\nVARIANT=debian\n");
  CHECK(machine.look()->verdict == Verdict::not_applicable);
  fs::remove_all(machine.directory / "etc");
  CHECK_FALSE(machine.look());
}
