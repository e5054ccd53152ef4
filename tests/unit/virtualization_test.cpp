// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <fstream>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kVirtualization;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

struct Machine {
  /// A function whose first bytes are vendor and device, of a class; `row1` is its bytes 0x10 to 0x1f.
  void function(const std::string& address, const std::string& ids, const std::string& kind,
                const std::string& row1 = {}) {
    const std::string zeros = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
    text += fmt::format("{} x\n00: {} 00 00 00 00 {} 00 00 00 00\n10: {}\n20: {}\n30: {}\n\n", address, ids, kind,
                        row1.empty() ? zeros : row1, zeros, zeros);
  }
  void file(const std::string& path, std::string_view content) const {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << content;
  }
  Result<Finding> look(const Parameters& parameters = Parameters::object()) const {
    file("lspci-xxxx.txt", text);
    const Root root = Root::open(directory.path()).value();
    RecordedRunner runner(root);
    return kVirtualization.check(Host(root, runner), parameters);
  }
  test::TemporaryDirectory directory;
  std::string text;
};

constexpr char kGpu[] = "de 10 84 26";
constexpr char kDisplay[] = "00 00 00 03";
constexpr char kBridge[] = "00 00 04 06";
constexpr char kToBus1[] = "00 00 00 00 00 00 00 00 00 01 01 00 00 00 00 00";

}  // namespace

TEST_CASE("virtualization: the CPU's flag outranks names") {
  Machine machine;
  machine.function("0000:01:00.0", kGpu, kDisplay);
  machine.file("sys/class/dmi/id/sys_vendor", "Google\n");
  machine.file("sys/class/dmi/id/product_name", "Google Compute Engine\n");
  machine.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: hypervisor \nflags\t\t: fpu vme\n");
  CHECK(machine.look()->verdict == Verdict::pass);  // bare metal of a cloud
  CHECK(machine.look()->facts["hypervisor"].is_null());
  machine.file("proc/cpuinfo", "flags\t\t: fpu vme hypervisor\n");
  const Finding finding = machine.look().value();
  CHECK(finding.verdict == Verdict::not_applicable);
  CHECK(finding.facts["hypervisor"] == "Google");
  CHECK(finding.summary.find("a guest of Google") != std::string::npos);
}

TEST_CASE("virtualization: drivers refuse GeForce cards in a guest, unless they are of one clique") {
  Machine machine;
  machine.file("proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
  const auto clique = [](int id) {  // capability list at 0x40: an empty vendor-specific one, then QEMU's
    return fmt::format("40: 09 48 03 00 00 00 00 00 09 00 08 50 32 50 {:02x} 00", id << 3);
  };
  const auto look = [&](const std::string& ids, const std::string& first, const std::string& second) {
    machine.text.clear();
    for (const auto& [bus, row] : {std::pair{"01", first}, std::pair{"02", second}}) {
      const std::string zeros = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
      machine.text += fmt::format("0000:{}:00.0 x\n00: {} 00 00 10 00 00 00 00 03 00 00 00 00\n10: {}\n20: {}\n", bus,
                                  ids, zeros, zeros);
      machine.text += "30: 00 00 00 00 40 00 00 00 00 00 00 00 00 00 00 00\n" + row + "\n\n";
    }
    return machine.look().value();
  };
  const std::string none = "40: 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
  CHECK(look(kGpu, none, none).verdict == Verdict::fail);
  CHECK(look(kGpu, clique(1), none).verdict == Verdict::fail);
  CHECK(look(kGpu, clique(1), clique(2)).verdict == Verdict::fail);
  CHECK(look(kGpu, clique(3), clique(3)).verdict == Verdict::not_applicable);
  CHECK(look("de 10 30 22", none, none).verdict == Verdict::not_applicable);  // professional
  // a driver that is made to give P2P asks neither hypervisor nor chipset
  CHECK(look(kGpu, none, none).verdict == Verdict::fail);
  const Finding built = machine.look({{"entry", "aikitoria/570.86.16-p2p"}}).value();
  CHECK(built.verdict == Verdict::not_applicable);
  CHECK(built.summary.ends_with(
      "; aikitoria/570.86.16-p2p gives P2P without asking about the chipset: the proof decides"));
  CHECK(machine.look({{"entry", "chosen"}})->verdict == Verdict::fail);  // nothing was chosen
  machine.file("proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
  machine.file("proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n");
  CHECK(look(kGpu, none, none).verdict == Verdict::fail);
  const Finding mailbox = look("de 10 04 22", none, none);  // RTX 3090
  CHECK(mailbox.verdict == Verdict::not_applicable);
  CHECK(mailbox.summary.find("NVIDIA's own driver 580.95.05 with registry keys gives P2P") != std::string::npos);
}

TEST_CASE("virtualization: names of DMI where no flag tells") {
  for (const auto& [vendor, product, guest] : {std::tuple{"QEMU", "Standard PC (Q35 + ICH9, 2009)", true},
                                               {"Microsoft Corporation", "Virtual Machine", true},
                                               {"Microsoft Corporation", "Surface", false},
                                               {"Supermicro", "SYS-4124GS-TNR", false},
                                               {"", "", false}}) {
    INFO(vendor << " " << product);
    Machine machine;
    machine.file("sys/class/dmi/id/sys_vendor", vendor);
    machine.file("sys/class/dmi/id/product_name", product);
    machine.file("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
    CHECK(machine.look()->facts["guest"] == guest);
    CHECK(machine.look()->verdict == (guest ? Verdict::not_applicable : Verdict::pass));
  }
}

TEST_CASE("virtualization: without both, only what no board has tells") {
  Machine machine;
  CHECK_FALSE(machine.look());
  machine.function("0000:00:01.0", "86 80 01 00", kBridge, kToBus1);
  machine.function("0000:01:00.0", kGpu, kDisplay);
  CHECK_FALSE(machine.look());  // an emulated machine has such a port, too
  SECTION("a GPU on a root bus") {
    machine.function("0000:02:00.0", kGpu, kDisplay);
    CHECK(machine.look()->facts["guest"] == true);
    CHECK(machine.look()->summary.find("IOMMU beyond the ports that it shows") != std::string::npos);
  }
  SECTION("the same bus of another domain") {
    machine.function("0001:01:00.0", kGpu, kDisplay);
    CHECK(machine.look()->summary.find("IOMMU beyond the ports that it shows") != std::string::npos);
  }
  SECTION("a port of QEMU") {
    machine.function("0000:00:02.0", "36 1b 0c 00", kBridge);
    CHECK(machine.look()->verdict == Verdict::not_applicable);
  }
}
