// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kNvidiaUserspace;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

struct Machine : test::MadeTree {
  void library(const std::string& folder, const std::string& name, const std::string& version) const {
    put(folder + "/" + name + ".so." + version, "");
    fs::remove(directory / (folder + "/" + name + ".so.1"));
    fs::create_symlink(name + ".so." + version, directory / (folder + "/" + name + ".so.1"));
  }
  Result<Finding> check() const { return kNvidiaUserspace.check(host, Parameters::object()); }
  Finding look() const { return check().value(); }
};

}  // namespace

TEST_CASE("nvidia-userspace: libraries and loaded module are of one version") {
  const Machine machine;
  CHECK(machine.look().verdict == Verdict::not_applicable);
  machine.put("sys/module/nvidia/version", "570.86.16\n");
  CHECK(machine.check().error().code == ErrorCode::not_found);
  const std::string lib = "usr/lib/x86_64-linux-gnu";
  machine.library(lib, "libnvidia-ml", "570.86.16");
  CHECK(machine.look().summary == "libcuda.so.1 is not installed");
  machine.library(lib, "libcuda", "570.86.16");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary == "libraries and loaded module are both 570.86.16");
  CHECK(finding.facts["libraries"].size() == 2);

  SECTION("an upgrade without a reboot") {
    machine.library(lib, "libcuda", "570.133.20");
    const Finding other = machine.look();
    CHECK(other.verdict == Verdict::fail);
    CHECK(other.summary ==
          "API mismatch: /usr/lib/x86_64-linux-gnu/libcuda.so.1 is 570.133.20, the loaded module is 570.86.16");
    CHECK_FALSE(other.next.empty());
  }
  SECTION("firmware of another version, by its directory") {
    machine.put("lib/firmware/nvidia/570.133.20/gsp_ga10x.bin", "");
    CHECK(machine.look().verdict == Verdict::pass);  // proprietary modules, which may do without
    machine.put("proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.16  Release Build\n");
    CHECK(machine.look().summary ==
          "module and firmware differ: the GPUs' firmware is 570.133.20, the loaded module 570.86.16");
    machine.put("lib/firmware/nvidia/570.86.16/gsp_ga10x.bin.zst", "");
    CHECK(machine.look().verdict == Verdict::pass);
  }
  SECTION("firmware of another version, by the kernel's log of the last load") {
    const std::string refused =
        "3,2,0,-;NVRM: GPU0 _kgspFwContainerVerifyVersion: GSP firmware image version mismatch: got version "
        "570.133.20, expected version 570.86.16\n";
    const std::string load = "6,1,0,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.16\n";
    machine.put("dev/kmsg", load + refused);
    CHECK(machine.look().verdict == Verdict::fail);
    CHECK(machine.look().facts["firmware"] == "570.133.20");
    machine.put("dev/kmsg", load + refused + load);
    CHECK(machine.look().verdict == Verdict::pass);
  }
  SECTION("another copy in another directory") {
    machine.library("usr/lib64", "libcuda", "535.10");
    CHECK(machine.look().verdict == Verdict::fail);
  }
  SECTION("one directory under two names is one copy") {
    fs::create_directory_symlink("x86_64-linux-gnu", machine.directory / "usr/lib/aarch64-linux-gnu");
    CHECK(machine.look().facts["libraries"].size() == 2);
  }
  SECTION("Debian's way over alternatives") {
    machine.library(lib + "/nvidia/current", "libcuda", "570.86.16");
    fs::remove(machine.directory / (lib + "/libcuda.so.1"));
    fs::create_directories(machine.directory / "etc/alternatives");
    fs::create_symlink("/etc/alternatives/libcuda", machine.directory / (lib + "/libcuda.so.1"));
    fs::create_symlink("/" + lib + "/nvidia/current/libcuda.so.1", machine.directory / "etc/alternatives/libcuda");
    CHECK(machine.look().verdict == Verdict::pass);
  }
  SECTION("a name that does not tell, a link to nothing, a version that cannot be read") {
    fs::remove(machine.directory / (lib + "/libcuda.so.1"));
    machine.put(lib + "/libcuda.so.1", "");
    CHECK(machine.check().error().code == ErrorCode::invalid);
    fs::remove(machine.directory / (lib + "/libcuda.so.1"));
    fs::create_symlink("libcuda.so.1", machine.directory / (lib + "/libcuda.so.1"));
    CHECK(machine.look().verdict == Verdict::fail);
    fs::remove(machine.directory / "sys/module/nvidia/version");
    CHECK_FALSE(machine.check());
  }
}
