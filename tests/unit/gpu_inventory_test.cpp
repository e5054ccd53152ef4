// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <fstream>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kGpuInventory;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

/// A machine of functions given as their first rows; the rest of their 256 bytes is zero.
class Machine {
 public:
  void add(int bus, std::string_view row, char rest = '0') {
    text_ += fmt::format("0000:{:02x}:00.0 function\n00: {}\n", bus, row);
    const std::string byte = {' ', rest, rest};
    for (int at = 0x10; at < 0x100; at += 0x10) {
      text_ += fmt::format("{:02x}:", at);
      for (int i = 0; i < 16; ++i) text_ += byte;
      text_ += '\n';
    }
    text_ += '\n';
  }
  void file(const std::string& path, std::string_view content) {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  Finding look(const Parameters& parameters = Parameters::object()) {
    file("lspci-xxxx.txt", text_);
    const Root root = Root::open(directory_.path()).value();
    RecordedRunner runner(root);
    return kGpuInventory.check(Host(root, runner), parameters).value();
  }

 private:
  test::TemporaryDirectory directory_;
  std::string text_;
};

constexpr char kRtx4090[] = "de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00";
constexpr char kRtx5090[] = "de 10 85 2b 00 00 00 00 a1 00 00 03 00 00 00 00";
constexpr char kAudio[] = "de 10 ba 22 00 00 00 00 a1 00 03 04 00 00 00 00";
constexpr char kNew3d[] = "de 10 34 12 00 00 00 00 a1 00 02 03 00 00 00 00";
constexpr char kAmd[] = "02 10 4e 16 00 00 00 00 a1 00 00 03 00 00 00 00";
constexpr char kLost[] = "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff";

}  // namespace

TEST_CASE("gpu-inventory: audio functions and other makers' displays are not counted") {
  Machine machine;
  machine.add(1, kRtx4090);
  machine.add(2, kAudio);
  machine.add(3, kAmd);
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.facts["gpus"].size() == 1);
  CHECK(finding.summary == "1 x NVIDIA GeForce RTX 4090; at least 2 NVIDIA GPUs are needed");
  CHECK_FALSE(finding.next.empty());
  CHECK(machine.look({{"at_least", 1}}).verdict == Verdict::pass);
}

TEST_CASE("gpu-inventory: unknown models are named by id and never guessed") {
  Machine machine;
  machine.add(1, kRtx4090);
  machine.add(2, kNew3d);
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["gpus"][1]["id"] == "10de:1234");
  CHECK(finding.facts["gpus"][1]["name"].is_null());
  CHECK(finding.facts["gpus"][1]["architecture"].is_null());
  CHECK(finding.facts["gpus"][1]["vram_mib"].is_null());
  CHECK(finding.summary.find("unknown 10de:1234") != std::string::npos);
}

TEST_CASE("gpu-inventory: what cannot be read is null") {
  Machine machine;
  machine.add(1, kRtx4090);
  machine.add(2, kRtx5090);
  const Finding finding = machine.look();
  CHECK(finding.facts["gpus"][0]["bar1_bytes"].is_null());
  CHECK(finding.facts["gpus"][0]["driver"].is_null());
}

TEST_CASE("gpu-inventory: a card that fell off the bus is a fail of its own") {
  Machine machine;
  machine.add(1, kRtx4090);
  machine.add(2, kRtx4090);
  machine.add(3, kLost, 'f');
  CHECK(machine.look().facts["gpus"].size() == 2);  // without the kernel's record its kind is unknown
  machine.file("sys/bus/pci/devices/0000:03:00.0/vendor", "0x10de\n");
  machine.file("sys/bus/pci/devices/0000:03:00.0/device", "0x2684\n");
  machine.file("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n");
  const Finding finding = machine.look();
  CHECK(finding.verdict == Verdict::fail);
  CHECK(finding.facts["gpus"][2]["lost"] == true);
  CHECK(finding.summary == "3 x NVIDIA GeForce RTX 4090; fell off the bus: 0000:03:00.0");
}
