// SPDX-License-Identifier: MIT
#include <fstream>

#include "base/action.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "machine/modules/toolchain.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kBuildTools;
extern const Action kBuildToolsAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

/// Debian 12 with all that a build needs.
struct Tree {
  Tree() {
    file("lspci-xxxx.txt", "0000:01:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");  // an RTX 4090
    file("etc/os-release", "ID=debian\n");
    file("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    kernel("6.1.0-9-amd64", "gcc-12 (Debian 12.2.0-14) 12.2.0");
    kernel("6.1.0-47-amd64", "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0");
    for (const char* tool : {"make", "git", "g++", "xz", "gcc-12", "gcc-ar-12", "gcc-11x"})
      program(std::string("usr/bin/") + tool);
    program("usr/sbin/dkms");
    file("var/lib/apt/lists/archive_Packages", "");
  }
  void kernel(const std::string& release, const std::string& compiler) {
    file("boot/vmlinuz-" + release, "");
    file("boot/config-" + release, "CONFIG_X=y\nCONFIG_CC_VERSION_TEXT=\"" + compiler + "\"\n");
    file("lib/modules/" + release + "/build/Makefile", "");
  }
  void file(const std::string& path, const std::string& content) {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << content;
  }
  void program(const std::string& path) {
    file(path, "");
    fs::permissions(directory / path, fs::perms(0755));
  }
  void drop(const std::string& path) { fs::remove_all(directory / path); }
  Result<Finding> check() { return kBuildTools.check(Host(Root::open(directory.path()).value(), runner), {}); }
  std::vector<std::string> lacking() { return check()->facts["lacking"]; }

  test::TemporaryDirectory directory;
  test::FakeRunner runner;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("build-tools: a complete machine lacks nothing, and no program was run") {
  Tree tree;
  const Finding finding = tree.check().value();
  INFO(finding.summary);
  CHECK(tree.lacking().empty());
  CHECK(finding.facts["kernels"].size() == 2);
  CHECK(finding.facts["kernels"][1]["release"] == "6.1.0-47-amd64");  // 47 is after 9
  CHECK(finding.facts["kernels"][1]["compiler"] == "gcc-12");
  CHECK(finding.verdict == Verdict::pass);
  CHECK(tree.runner.ran.empty());
}

TEST_CASE("build-tools: what lacks is named, with the packages that bring it") {
  Tree tree;
  tree.drop("usr/sbin/dkms");
  tree.drop("usr/bin/g++");
  tree.drop("usr/bin/xz");
  tree.kernel("6.1.0-47-amd64", "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0");
  tree.drop("lib/modules/6.1.0-47-amd64");
  CHECK(tree.lacking() ==
        Texts{"headers of 6.1.0-47-amd64", "gcc-13, the compiler of 6.1.0-47-amd64", "dkms", "g++", "xz"});
  const Finding finding = tree.check().value();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.next == "apt-get install linux-headers-6.1.0-47-amd64 gcc-13 dkms g++ xz-utils");
  tree.file("etc/os-release", "ID=fedora\n");
  CHECK(tree.check()->next.starts_with("Install the equivalents of these Debian packages: kernel-devel-"));
}

TEST_CASE("build-tools: options of the kernel that make a warning end a build are evidence") {
  Tree tree;
  CHECK(to_json(tree.check().value()).dump().find("WERROR") == std::string::npos);
  tree.file("boot/config-6.1.0-47-amd64",
            "CONFIG_CC_VERSION_TEXT=\"gcc-12 (Debian 12.2.0-14) 12.2.0\"\nCONFIG_WERROR=y\nCONFIG_OBJTOOL_WERROR=y\n");
  const Finding finding = tree.check().value();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(to_json(finding).dump().find("6.1.0-47-amd64 makes warnings errors (CONFIG_OBJTOOL_WERROR, CONFIG_WERROR)") !=
        std::string::npos);
}

TEST_CASE("distribution: as people read it, and whether p2pd was tested there") {
  Tree tree;
  const auto text = [&](const char* os_release) {
    tree.file("etc/os-release", os_release);
    return distribution(Host(Root::open(tree.directory.path()).value(), tree.runner)).text();
  };
  CHECK(text("ID=ubuntu\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\n") == "Ubuntu 24.04");
  CHECK(text("ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\n") == "Debian 13");
  for (const char* untested :
       {"ID=ubuntu\nNAME=\"Ubuntu\"\nVERSION_ID=\"25.10\"\n", "ID=pop\nNAME=\"Pop!_OS\"\nVERSION_ID=\"22.04\"\n",
        "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nNAME=\"Linux Mint\"\nVERSION_ID=\"22.3\"\n"}) {
    const std::string name = assigned_value(untested, "NAME") + " " + assigned_value(untested, "VERSION_ID");
    CHECK(text(untested) == name + ", not tested with p2pd");
  }
  CHECK(text("ID=cachyos\nID_LIKE=arch\nNAME=\"CachyOS Linux\"\n") == "CachyOS Linux, not tested with p2pd");
  CHECK(text("ID=debian\n") == "debian, not tested with p2pd");
  tree.file("var/lib/dpkg/info/pve-manager.list", "");
  CHECK(text("ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\n") == "Proxmox VE 9, not tested with p2pd");
  tree.drop("var/lib/dpkg/info");
  CHECK(text("NAME=x\n").empty());
}

TEST_CASE("build-tools: an old kernel that is neither running nor newest is not asked about") {
  Tree tree;
  tree.file("boot/vmlinuz-5.10.0-1-amd64", "");
  tree.file("boot/vmlinuz-5.10.0-1-amd64.old", "");
  CHECK(tree.lacking().empty());
}

TEST_CASE("build-tools: what cannot be found out is no pass") {
  Tree tree;
  tree.file("boot/config-6.1.0-47-amd64", "CONFIG_CC_VERSION_TEXT=\"");
  CHECK(tree.check()->verdict != Verdict::pass);
  CHECK(
      (tree.check()->verdict == Verdict::fail || tree.check()->summary == "not known: the compiler of 6.1.0-47-amd64"));
  Tree record;
  record.drop("usr");
  CHECK(record.check().error().code == ErrorCode::not_found);
  record.drop("boot");
  record.drop("proc");
  CHECK_FALSE(record.check().has_value());
}

TEST_CASE(
    "build-tools: the fix has apt install what lacks, beside the other compilers, and undo takes away just that") {
  Tree tree;
  tree.drop("usr/sbin/dkms");
  tree.drop("usr/bin/gcc-12");
  Host host(Root::open(tree.directory.path()).value(), tree.runner);
  const Description description = kBuildToolsAction.describe(host, {}).value();
  CHECK(description.summary == "install gcc-12, dkms");
  REQUIRE(description.commands.size() == 1);
  CHECK(description.commands[0].ends_with("install gcc-12 dkms"));
  fs::remove(tree.directory / "var/lib/apt/lists/archive_Packages");
  CHECK(kBuildToolsAction.describe(host, {})->commands.front().ends_with(" update"));
  Tree whole;
  Host complete(Root::open(whole.directory.path()).value(), whole.runner);
  REQUIRE(kBuildToolsAction.apply(complete, {}));
  CHECK(whole.runner.ran.empty());
}

TEST_CASE("toolchain: compilers as kernels name them", "[toolchain]") {
  struct Row {
    const char* text;
    const char* compiler;
  };
  const Row rows[] = {
      {"gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc-12"},
      {"x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0, GNU ld (GNU Binutils for Ubuntu) 2.42) #1 SMP",
       "gcc-13"},
      {"gcc (GCC) 14.2.1 20240912 (Red Hat 14.2.1-3), GNU ld version 2.41-37.fc40) #1 SMP PREEMPT_DYNAMIC", "gcc-14"},
      {"gcc (GCC) 15.3.0, GNU ld (GNU Binutils) 2.46) #1 SMP PREEMPT_DYNAMIC @0", "gcc-15"},
      {"gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1~20.04.1)) #1 SMP Debian 6.1.170-1", "gcc-9"},
      {"gcc (crosstool-NG 1.24.0.500_584e7e8) 10.3.0", "gcc-10"},
      {"clang version 17.0.6, LLD 17.0.6", "clang-17"},
      {"Debian clang version 14.0.6", "clang-14"},
      {"gcc", ""},
      {"", ""},
      {"gcc 99999999999999.1", ""},
      {"rustc 1.70.0", ""},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const auto found = parse_compiler(row.text);
    CHECK((found ? found->text() : "") == row.compiler);
  }
}

TEST_CASE("toolchain: the builder's name is not the compiler", "[toolchain]") {
  Tree tree;
  tree.drop("boot");
  tree.file("proc/version",
            "Linux version 6.1.0-9-amd64 (root@gcc-4.8.5) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld 2.40) #1\n");
  CHECK(tree.check()->facts["kernels"][0]["compiler"] == "gcc-12");
  tree.file("proc/version", "Linux version 6.1.0-9-amd64 gcc-4.8.5\n");
  CHECK(tree.check()->facts["kernels"][0]["compiler"].is_null());
}

TEST_CASE("toolchain: the package of a kernel's headers, by the system", "[toolchain]") {
  Tree tree;
  const auto package = [&](const std::string& release) {
    return headers_package(Host(Root::open(tree.directory.path()).value(), tree.runner), release);
  };
  CHECK(package("6.1.0-9-amd64") == "linux-headers-6.1.0-9-amd64");
  CHECK(package("6.17.2-1-pve") == "proxmox-headers-6.17.2-1-pve");
  tree.file("var/lib/dpkg/info/pve-kernel-6.2.16-3-pve.list", "");
  CHECK(package("6.2.16-3-pve") == "pve-headers-6.2.16-3-pve");
  tree.file("etc/os-release", "ID=nobara\nID_LIKE=\"rhel centos fedora\"\n");
  CHECK(package("6.17.7-300.fc43.x86_64") == "kernel-devel-6.17.7-300.fc43.x86_64");
  tree.file("etc/os-release", "ID=cachyos\nID_LIKE=arch\n");
  CHECK(package("6.17.8-arch1-1") == "linux-headers");
  tree.file("lib/modules/7.2.2-2-cachyos/pkgbase", "linux-cachyos\n");
  CHECK(package("7.2.2-2-cachyos") == "linux-cachyos-headers");
}

TEST_CASE("toolchain: the package of a kernel, plain or signed", "[toolchain]") {
  Tree tree;
  const auto package = [&](const std::string& release) {
    return kernel_package(Host(Root::open(tree.directory.path()).value(), tree.runner), release);
  };
  CHECK(package("6.1.0-9-amd64") == "linux-image-6.1.0-9-amd64");
  CHECK(package("6.17.2-1-pve") == "proxmox-kernel-6.17.2-1-pve");
  tree.file("var/lib/dpkg/info/proxmox-kernel-6.17.2-1-pve-signed.list", "");
  CHECK(package("6.17.2-1-pve") == "proxmox-kernel-6.17.2-1-pve-signed");
}

TEST_CASE("build-tools: Proxmox's headers, and Arch's image that has no release in its name") {
  Tree tree;
  tree.kernel("6.17.2-1-pve", "gcc-12 (Debian 12.2.0-14) 12.2.0");
  tree.drop("lib/modules/6.17.2-1-pve");
  CHECK(tree.check()->next == "apt-get install proxmox-headers-6.17.2-1-pve");
  Tree arch;
  arch.drop("boot");
  arch.drop("lib/modules/6.1.0-47-amd64");
  arch.file("etc/os-release", "ID=arch\n");
  arch.file("boot/vmlinuz-linux", "");
  arch.file("lib/modules/6.1.0-9-amd64/pkgbase", "linux\n");
  arch.file("lib/modules/6.1.0-9-amd64/build/.config", "CONFIG_CC_VERSION_TEXT=\"gcc-12 (GCC) 12.2.0\"\n");
  CHECK(arch.check()->facts["kernels"].size() == 1);
  CHECK(arch.lacking().empty());
}
