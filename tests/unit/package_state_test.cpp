// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/probe.hpp"
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kPackageState;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const std::string kLibc = "Package: libc6\nStatus: install ok installed\nVersion: 2.36\n\n";
const std::string kStatus = "var/lib/dpkg/status";

struct Machine : test::MadeTree {
  Machine() {
    put(kStatus, kLibc);
    fs::create_directories(directory / "var/lib/dpkg/updates");
  }
  Result<Finding> look() { return kPackageState.check(host, Parameters::object()); }
  Finding fails() {
    const Finding finding = look().value();
    CHECK(finding.verdict == Verdict::fail);
    CHECK_FALSE(finding.next.empty());
    return finding;
  }
};

}  // namespace

TEST_CASE("package-state: pins of drivers and kernels are facts") {
  Machine machine;
  machine.put("etc/apt/preferences.d/gpu",
              "Package: nvidia-* libnvidia-*\nPin: version 570.*\nPin-Priority: 1001\n\n"
              "Package: firefox\nPin: release a=stable\nPin-Priority: 990\n");
  machine.put("etc/apt/preferences", ":\n\nPackage:linux-image-amd64\nno colon\n");
  const nlohmann::json pins = machine.look()->facts["pins"];
  REQUIRE(pins.size() == 2);
  CHECK(pins[0]["package"] == "linux-image-amd64");
  CHECK(pins[1]["package"] == "nvidia-* libnvidia-*");
  CHECK(pins[1]["pin"] == "version 570.*");
  CHECK(pins[1]["priority"] == "1001");
}

TEST_CASE("package-state: sound passes, by files alone") {
  Machine machine;
  machine.put("run/reboot-required");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary == "dpkg is sound, 1 packages; a reboot is required");
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("package-state: what an installation has begun is no fault before it ends") {
  Machine machine;
  machine.put(kStatus, kLibc + "Package: hostname\nStatus: install ok half-configured\n");
  machine.put("var/lib/dpkg/lock-frontend", "");
  struct stat lock {};
  REQUIRE(::stat((machine.directory / "var/lib/dpkg/lock-frontend").c_str(), &lock) == 0);
  machine.put("proc/4711/comm", "apt-get\n");
  machine.put("proc/locks", fmt::format("1: POSIX  ADVISORY  WRITE 4711 {:02x}:{:02x}:{} 0 EOF\n", ::major(lock.st_dev),
                                        ::minor(lock.st_dev), lock.st_ino));
  CHECK(machine.look()->verdict == Verdict::not_applicable);
  machine.put("proc/locks", "");
  CHECK(machine.fails().summary.find("dpkg was interrupted: 1 packages half installed, hostname first") == 0);
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
