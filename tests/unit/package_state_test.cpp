// SPDX-License-Identifier: MIT
// The dpkg status database (machine/packages/dpkg_status.hpp), the settings in apt.conf
// (machine/packages/apt.hpp), and the check of the package state, which reads both.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/probe.hpp"
#include "catch.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"
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
    CHECK(finding.facts["interrupted"] == nlohmann::json{"nvidia-dkms-550"});
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

TEST_CASE("package-state: what p2pd's own change of packages left undone is completed by its fix") {
  Machine machine;
  machine.put("var/lib/dpkg/updates/0000", "Package: libc6\n");
  machine.fails();
  fs::create_directories(machine.directory / "var/lib/p2pd/.scripts.new");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary.find("1 updates not written") != std::string::npos);
  CHECK(finding.next.empty());
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

TEST_CASE("dpkg status: packages with what dpkg says of them") {
  const auto packages = parse_dpkg_status(
      "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nConffiles:\n /etc/ld.so.conf 0\n"
      "Description: a\n Package: not one\n .\n\tStatus: neither\nVersion: 2.36-9\n\n\n"
      "package: nvidia-driver\nSTATUS: hold  reinstreq   half-installed\n");
  REQUIRE(packages);
  REQUIRE(packages->size() == 2);
  CHECK(packages->at(0).name == "libc6");
  CHECK(packages->at(0).version == "2.36-9");
  CHECK(packages->at(0).architecture == "amd64");
  CHECK(packages->at(0).installed());
  CHECK_FALSE(packages->at(0).interrupted());
  CHECK(packages->at(1).name == "nvidia-driver");
  CHECK(packages->at(1).held());
  CHECK(packages->at(1).flag == "reinstreq");
  CHECK(packages->at(1).interrupted());
}

TEST_CASE("dpkg status: each state") {
  for (const auto& [state, interrupted] : {std::pair{"installed", false},
                                           {"config-files", false},
                                           {"not-installed", false},
                                           {"unpacked", true},
                                           {"half-installed", true},
                                           {"half-configured", true},
                                           {"triggers-awaited", true},
                                           {"triggers-pending", true},
                                           {"new-word", true}}) {
    INFO(state);
    const auto packages = parse_dpkg_status(fmt::format("Package: a\nStatus: install ok {}\n", state));
    REQUIRE(packages);
    CHECK(packages->at(0).interrupted() == interrupted);
  }
}

TEST_CASE("dpkg status: what is broken or cut off is an error") {
  for (const char* text :
       {"Package: a\nStatus: install ok installed", "Package: a\n", "Package: a\nStatus: install ok\n",
        "Package: a\nStatus: install ok installed again\n", "Status: install ok installed\n", "Package: a\nnothing\n",
        "Package: a\nVersion: 1\n\nPackage: b\nStatus: install ok installed\n",
        "\x7f"
        "ELF\n"}) {
    INFO(text);
    const auto packages = parse_dpkg_status(text);
    REQUIRE_FALSE(packages);
    CHECK(packages.error().code == ErrorCode::invalid);
  }
  CHECK(parse_dpkg_status("").value().empty());
  CHECK(parse_dpkg_status("\n\n").value().empty());
}

TEST_CASE("apt.conf: names, blocks, lists and comments") {
  const auto options = parse_apt_conf(
      "APT::Periodic::Unattended-Upgrade \"1\"; // daily\n# \"no\";\n/* Unattended-Upgrade::X \"y\"; */\n"
      "Unattended-Upgrade { Package-Blacklist { \"nvidia\"; \"libnvidia-\"; }; Automatic-Reboot true; };\n"
      "Unattended-Upgrade::Package-Blacklist:: \"linux-\";\nEmpty;\n",
      "f");
  CHECK(apt_value(options, "apt::periodic::unattended-upgrade") == "1");
  CHECK(apt_list(options, "unattended-upgrade::package-blacklist") ==
        std::vector<std::string>{"nvidia", "libnvidia-", "linux-"});
  CHECK(apt_value(options, "unattended-upgrade::automatic-reboot") == "true");
  CHECK(apt_value(options, "unattended-upgrade::x").empty());
  CHECK(options.size() == 5);
  CHECK(options.front().source == "f");
}

TEST_CASE("apt.conf: a brace ends a statement as a semicolon does") {
  const auto options = parse_apt_conf("Z { L { \"x\" }; M \"1\" }; Z::N \"named\" { O \"2\"; };", "f");
  CHECK(options == std::vector<AptOption>{
                       {"z::l::", "x", "f"}, {"z::m", "1", "f"}, {"z::n", "named", "f"}, {"z::n::o", "2", "f"}});
}

TEST_CASE("apt.conf: a long name does not multiply") {
  std::string text = std::string(100'000, 'a') + "{";
  for (int i = 0; i < 100'000; ++i) text += "\"\";";
  CHECK(parse_apt_conf(text, "f").empty());
  CHECK(parse_apt_conf(std::string(400, 'a') + "{" + std::string(400, 'b') + " 1; c 2;", "f").empty());
  CHECK(parse_apt_conf(std::string(400, 'a') + " 1;", "f").size() == 1);
}

TEST_CASE("apt.conf: what is broken ends") {
  CHECK(parse_apt_conf("A \"x", "f").empty());
  CHECK(parse_apt_conf("}}};;;", "f").empty());
  CHECK(parse_apt_conf("/* never", "f").empty());
  CHECK(parse_apt_conf("", "f").empty());
  CHECK(parse_apt_conf(std::string(100000, '{'), "f").empty());
}

TEST_CASE("apt.conf: files in apt's order, others left out, lists cleared") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  CHECK(apt_options(host).value().empty());
  fs::create_directories(directory / "etc/apt/apt.conf.d");
  const auto put = [&](const std::string& name, std::string_view text) { directory.put("etc/apt/" + name, text); };
  put("apt.conf.d/20auto-upgrades", "A::B \"1\"; L { \"x\"; \"y\"; };");
  put("apt.conf.d/50site.conf", "a::b \"2\";");
  put("apt.conf.d/60old.bak", "A::B \"3\";");
  put("apt.conf.d/70edit~", "A::B \"4\";");
  CHECK(apt_value(apt_options(host).value(), "a::b") == "2");
  CHECK(apt_list(apt_options(host).value(), "l").size() == 2);
  put("apt.conf", "#clear L; L { \"z\"; }; A::B \"5\";");
  CHECK(apt_value(apt_options(host).value(), "a::b") == "5");
  CHECK(apt_list(apt_options(host).value(), "l") == std::vector<std::string>{"z"});
}
