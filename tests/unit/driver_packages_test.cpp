// SPDX-License-Identifier: MIT
#include "machine/packages/driver_packages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "catch.hpp"
#include "machine/driver/driver_pins.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "machine/packages/package_backup.hpp"
#include "machine/packages/staged_debs.hpp"

using namespace p2pd;

namespace {

std::string file(const std::string& name) {
  std::ifstream in(std::string(P2PD_SOURCE_DIR) + "/tests/unit/packages/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// "X-Automatic: yes" represents apt's mark in the fixtures.
std::set<std::string> automatic_in(const std::string& text) {
  std::set<std::string> found;
  const auto paragraphs = parse_paragraphs(text, {"package", "architecture", "x-automatic"}).value();
  for (const Paragraph& one : paragraphs) {
    const std::string architecture = one.value("architecture") == "all" ? "amd64" : one.value("architecture");
    if (one.value("x-automatic") == "yes") found.insert(one.value("package") + ":" + architecture);
  }
  return found;
}

DriverPackages select(const std::string& text) {
  return select_driver_packages(parse_dpkg_status(text).value(), automatic_in(text));
}

std::vector<std::string> sorted(std::vector<std::string> list) {
  std::ranges::sort(list);
  return list;
}

std::string package(const std::string& name, const std::string& fields = "",
                    const std::string& status = "install ok installed") {
  return fmt::format("Package: {}\nStatus: {}\nArchitecture: amd64\nVersion: 1\nPriority: optional\n{}\n", name, status,
                     fields);
}

}  // namespace

TEST_CASE("driver packages: the exact list of a distribution") {
  // each fixture has the expected list: a package to purge has "X-Goes: " with the reason
  for (const char* name : {"debian-12", "ubuntu-22.04", "ubuntu-24.04", "nvidia-repository"}) {
    INFO(name);
    const std::string text = file(name);
    REQUIRE_FALSE(text.empty());
    std::vector<std::string> wanted, found, spared, stays;
    const auto paragraphs = parse_paragraphs(text, {"package", "architecture", "x-goes", "x-spared"}).value();
    for (const Paragraph& one : paragraphs) {
      const std::string id =
          one.value("package") + (one.value("architecture") == "all" ? "" : ":" + one.value("architecture"));
      if (!one.value("x-goes").empty()) wanted.push_back(id + " " + one.value("x-goes"));
      if (one.value("x-spared") == "yes") stays.push_back(id);
    }
    const DriverPackages list = select(text);
    for (const auto& one : list.purged) found.push_back(fmt::format("{} {}", one.package.id(), to_string(one.because)));
    for (const auto& one : list.spared) spared.push_back(one.package);
    CHECK(sorted(found) == sorted(wanted));
    CHECK(sorted(spared) == sorted(stays));
    CHECK(list.blocked.empty());
  }
}

TEST_CASE("driver packages: roles and what is spared, by name") {
  const std::tuple<const char*, DriverRole, bool> kCases[] = {
      {"nvidia-driver", DriverRole::libraries, false},
      {"nvidia-driver-570-open", DriverRole::libraries, false},
      {"nvidia-driver-assistant", DriverRole::none, true},
      {"nvidia-dkms-570", DriverRole::modules, false},
      {"nvidia-open", DriverRole::modules, false},
      {"nvidia-open-570", DriverRole::modules, false},
      {"nvidia-tesla-470-kernel-dkms", DriverRole::modules, false},
      {"linux-modules-nvidia-570-open-6.8.0-60-generic", DriverRole::modules, false},
      {"linux-modules-6.8.0-60-generic", DriverRole::none, true},
      {"libnvidia-compute-570", DriverRole::libraries, false},
      {"libnvidia-common-570", DriverRole::companion, false},
      {"libnvidia-cfg1", DriverRole::companion, false},
      {"libnvidia-egl-wayland1", DriverRole::companion, false},
      {"libnvidia-egl-wayland-dev", DriverRole::none, false},
      {"libnvidia-ml1", DriverRole::libraries, false},
      {"libnvidia-ml-dev", DriverRole::none, false},
      {"libnvidia-glvkspirv", DriverRole::companion, false},
      {"libnvsdm", DriverRole::companion, false},
      {"libnvsdm-dev", DriverRole::none, false},
      {"nvidia-fabricmanager", DriverRole::companion, false},
      {"nvidia-fabricmanager-570", DriverRole::companion, false},
      {"nvidia-fabricmanager-dev-570", DriverRole::none, false},
      {"nvidia-driver-libs", DriverRole::libraries, false},
      {"nvidia-driver-cuda", DriverRole::libraries, false},
      {"nvidia-driver-local-repo-ubuntu2204-570.86.15", DriverRole::none, true},
      {"nvidia-driver-pinning-570", DriverRole::none, true},
      {"libnvidia-container1", DriverRole::none, true},
      {"libnvidia-container-tools", DriverRole::none, true},
      {"nvidia-container-toolkit", DriverRole::none, true},
      {"nvidia-cuda-mps", DriverRole::companion, false},
      {"nvidia-cuda-toolkit", DriverRole::none, true},
      {"cuda-drivers-570", DriverRole::libraries, false},
      {"cuda-toolkit-12-8", DriverRole::none, true},
      {"firmware-nvidia-gsp", DriverRole::companion, false},
      {"firmware-nvidia-graphics", DriverRole::none, true},
      {"libglx-nvidia0", DriverRole::companion, false},
      {"libglx-mesa0", DriverRole::none, false},
      {"libcudart12", DriverRole::none, false},
      {"libcudnn9-cuda-12", DriverRole::none, true},
      {"nvtop", DriverRole::none, false},
      {"pciutils", DriverRole::none, false},
  };
  for (const auto& [name, role, spared] : kCases) {
    INFO(name);
    CHECK(static_cast<int>(driver_role(name)) == static_cast<int>(role));
    CHECK(spared_because(name).empty() == !spared);
  }
}

TEST_CASE("driver packages: what needs it goes along, unless it is to stay") {
  const std::string driver = package("libcuda1", "Provides: libcuda.so.1 (= 1), libcuda-12.8-1\n");
  auto list = select(driver + package("blender-gpu", "Depends: libc6, libcuda.so.1 (>= 1) | libother\n") +
                     package("blender", "Pre-Depends: blender-gpu\n"));
  REQUIRE(list.purged.size() == 3);
  CHECK(list.purged[1].package.name == "blender-gpu");
  CHECK(list.purged[1].need == "libcuda.so.1");
  CHECK(list.purged[2].because == DriverPackages::Because::needs_it);
  list = select(driver + package("libother") + package("blender-gpu", "Depends: libcuda.so.1 | libother\n"));
  CHECK(list.purged.size() == 1);
  list = select(driver + package("nvidia-cuda-toolkit", "Depends: libcuda1 (>= 5)\n"));
  CHECK(list.purged.size() == 1);
  REQUIRE(list.blocked.size() == 1);
  CHECK(list.blocked[0].package == "nvidia-cuda-toolkit:amd64");
  CHECK(list.blocked[0].why == "libcuda1");
  CHECK(select(package("blender-gpu", "Depends: libcuda1\n")).empty());
  CHECK(select(package("libcuda1", "", "deinstall ok config-files")).empty());
  CHECK(select(package("libcuda1", "", "install reinstreq half-installed")).purged.size() == 1);
}

TEST_CASE("driver packages: headers stay, unless they need what goes") {
  const std::string driver = package("libnvidia-ml1") + package("libnvidia-egl-wayland1");
  const auto list = select(driver + package("libnvidia-ml-dev", "Recommends: libnvidia-ml1\n") +
                           package("nvidia-cuda-dev", "Depends: libnvidia-ml-dev\n") +
                           package("libnvidia-egl-wayland-dev", "Depends: libnvidia-egl-wayland1\n"));
  CHECK(list.blocked.empty());
  REQUIRE(list.purged.size() == 3);
  CHECK(list.purged[2].package.name == "libnvidia-egl-wayland-dev");
  CHECK(list.purged[2].because == DriverPackages::Because::needs_it);
  for (const std::string& expression : driver_expressions())
    CHECK_FALSE(std::regex_match("libnvidia-ml-dev", std::regex(expression)));
}

TEST_CASE("driver packages: what came with it, and what only looks so") {
  const std::string driver =
      package("nvidia-driver", "Depends: libjansson4, dkms\nRecommends: screen-resolution-extra\n");
  const std::string automatic = "X-Automatic: yes\n";
  const auto goes = [](const std::string& text, const std::string& name) {
    return std::ranges::any_of(select(text).purged, [&](const auto& one) { return one.package.name == name; });
  };
  const std::string jansson = package("libjansson4", automatic);
  CHECK(goes(driver + jansson, "libjansson4"));
  CHECK(goes(driver + package("screen-resolution-extra", automatic + "Depends: python3-gi\n") +
                 package("python3-gi", automatic),
             "python3-gi"));
  CHECK_FALSE(goes(driver + package("libjansson4"), "libjansson4"));
  CHECK_FALSE(goes(driver + package("libjansson4", automatic, "hold ok installed"), "libjansson4"));
  for (const char* relation : {"Depends", "Pre-Depends", "Recommends", "Suggests"})
    CHECK_FALSE(goes(driver + jansson + package("jq", fmt::format("{}: libjansson4\n", relation)), "libjansson4"));
  CHECK_FALSE(goes(driver + package("libjansson4", automatic + "Essential: yes\n"), "libjansson4"));
  CHECK_FALSE(goes(driver + package("dkms", automatic + "Depends: make\n") + package("make", automatic), "make"));
  CHECK_FALSE(goes(driver + package("orphan", automatic), "orphan"));  // not needed before either: it stays
}

TEST_CASE("apt: user _apt reads what comes from the network, root reads only .deb files of the package backup") {
  const auto as_root = [](const Command& command) { return command.text().find(kAptAsRoot) != std::string::npos; };
  CHECK_FALSE(as_root(apt_get({"install", "x"})));
  CHECK_FALSE(as_root(update_command()));
  CHECK(as_root(install_from({})));
}

TEST_CASE("apt: what it would do") {
  const AptPlan plan = parse_apt_plan(
      "Reading package lists...\nPurg libcuda1 [570.1]\nRemv libcuda1:i386 [570.1] []\n"
      "Inst nvidia-smi [570.1] (570.2 bookworm [amd64]) []\nInst dkms (3.0 Debian:12/stable [all])\nConf dkms (3.0)\n");
  CHECK(plan.removes == std::set<std::string>{"libcuda1", "libcuda1:i386"});
  CHECK(plan.installs == std::map<std::string, std::string>{{"nvidia-smi", "570.2"}, {"dkms", "3.0"}});
  CHECK(plan.origins == std::map<std::string, std::string>{{"nvidia-smi", "bookworm"}, {"dkms", "Debian:12/stable"}});
  const std::vector<std::string> both = {"libcuda1:i386", "libcuda1:amd64"}, two = {"nvidia-smi:amd64", "dkms"};
  CHECK(require_plan(plan, two, both));
  CHECK(require_plan(plan, two, {"libcuda1:amd64"}).error().message == "apt would also remove libcuda1:i386");
  CHECK(require_plan(plan, {"dkms"}, both).error().message == "apt would also install nvidia-smi");
  CHECK(require_plan(plan, {"dkms", "gcc:amd64"}, both).error().message == "apt refuses to install gcc:amd64");
}

TEST_CASE("driver pins: one text for apt, one for unattended-upgrades") {
  CHECK(driver_preferences().find("Package: nvidia-kernel-dkms ") != std::string::npos);
  CHECK(driver_preferences().find(" libnvidia-c[!o]*[!v] ") != std::string::npos);
  CHECK(driver_blacklist().find("\"libnvidia-c[^o].*[^v]$\";") != std::string::npos);
  CHECK(driver_preferences().find("Pin-Priority: -1\n") != std::string::npos);
  DpkgPackage kept;
  kept.name = "libcuda1", kept.architecture = "i386", kept.version = "550.163.01-2";
  const std::string pins = driver_preferences({kept}, "550.163.01");
  const std::size_t its = pins.find("Package: libcuda1:i386\nPin: version 550.163.01-2\nPin-Priority: 1001\n\n");
  CHECK(its < pins.find("\nPin: version /^([0-9]+:)?550\\.163\\.01-/\nPin-Priority: 500\n"));
  CHECK(pins.find("linux-modules-nvidia-") == std::string::npos);
  CHECK(driver_blacklist(true).find("linux-modules-nvidia-") == std::string::npos);
  CHECK(its < pins.find("Pin-Priority: -1\n"));  // before the globs: apt takes the first that fits
}

TEST_CASE("staged debs: the control file that dpkg's record was made of") {
  CHECK(control_of("Package: a\nStatus: install ok installed\nVersion: 1\nConffiles:\n /etc/a 1\n /etc/b 2\n"
                   "Description: x\n y\nConfig-Version: 1\n") == "Package: a\nVersion: 1\nDescription: x\n y\n");
  const char* diversions =
      "/usr/lib/libGL.so.1\n/usr/lib/aside/libGL.so.1\nglx-diversions\n/bin/sh\n/bin/sh.distrib\ndash\n";
  CHECK(diverted(diversions, "/usr/lib/libGL.so.1", "libgl1") == "/usr/lib/aside/libGL.so.1");
  CHECK(diverted(diversions, "/usr/lib/libGL.so.1", "glx-diversions") == "/usr/lib/libGL.so.1");
  CHECK(diverted(diversions, "/bin/true", "coreutils") == "/bin/true");
  CHECK(diverted("/a\n/b\n", "/a", "x") == "/a");
}
