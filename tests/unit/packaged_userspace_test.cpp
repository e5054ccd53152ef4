// SPDX-License-Identifier: MIT
#include "machine/driver/driver_install.hpp"

#include "catch.hpp"
#include "made_tree.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Debian 13's driver as its packages install it; each test removes or adds something.
struct Trixie : MadeTree {
  Trixie() {
    status = package("libcuda1", "550.163.01-2") + package("libnvidia-ml1", "550.163.01-2") +
             package("nvidia-kernel-common", "20240109+1");
    library("libcuda.so", "550.163.01");
    library("libnvidia-ml.so", "550.163.01");
    put("usr/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin", "x");
  }
  static std::string package(const std::string& name, const std::string& version) {
    return "Package: " + name + "\nStatus: install ok installed\nArchitecture: amd64\nVersion: " + version + "\n\n";
  }
  void library(const std::string& name, const std::string& version,
               const std::string& place = "usr/lib/x86_64-linux-gnu/") const {
    put(place + name + "." + version, "");
    fs::remove(directory / (place + name + ".1"));
    fs::create_symlink(name + "." + version, directory / (place + name + ".1"));
  }
  PackagedUserspace found() const {
    put("var/lib/dpkg/status", status);
    return packaged_userspace(host).value();
  }
  std::string status;
};

}  // namespace

TEST_CASE("packaged userspace: packages of one version, with firmware for open modules, can stay") {
  Trixie machine;
  CHECK(machine.found().version == "550.163.01");
  CHECK(machine.found().can_stay());
  SECTION("the firmware is gone") {
    fs::remove_all(machine.directory / "usr/lib/firmware");
    CHECK_FALSE(machine.found().can_stay());
    CHECK(machine.found().why_not ==
          "the firmware for open modules of 550.163.01 is not installed (firmware-nvidia-gsp, nvidia-firmware-*)");
  }
  SECTION("a library of another driver") {
    machine.library("libcuda.so", "535.183.01", "usr/lib/");
    CHECK(machine.found().why_not == "libraries of more than one driver are installed: 535.183.01, 550.163.01");
  }
  SECTION("half of an upgrade: libraries of a version that no package has") {
    machine.library("libcuda.so", "550.200.02");
    machine.library("libnvidia-ml.so", "550.200.02");
    CHECK(machine.found().why_not == "the libraries of 550.200.02 belong to no package");
  }
  SECTION("no libcuda: a machine for displays") {
    fs::remove(machine.directory / "usr/lib/x86_64-linux-gnu/libcuda.so.1");
    CHECK(machine.found().why_not == "the packages bring no libcuda.so.1");
  }
  SECTION("a runfile beside them") {
    machine.put("usr/bin/nvidia-uninstall", "");
    CHECK(machine.found().why_not == "NVIDIA's runfile installed a driver beside the packages");
  }
  SECTION("no packages: nothing to say") {
    machine.status = Trixie::package("libc6", "2.41-12");
    CHECK(machine.found().version.empty());
    CHECK(machine.found().why_not.empty());
  }
}
