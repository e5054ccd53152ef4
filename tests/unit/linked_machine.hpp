// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "temporary.hpp"

namespace p2pd::test {

inline constexpr std::uint16_t kAmd = 0x1022;
inline constexpr std::uint16_t kIntel = 0x8086;
inline constexpr std::uint16_t kQemu = 0x1b36;
inline constexpr int kGpu = 1;  // port types: legacy endpoint, root port, upstream and downstream port of a switch
inline constexpr int kRoot = 4;
inline constexpr int kUp = 5;
inline constexpr int kDown = 6;

/// A function of a made machine.
struct LinkedFunction {
  std::string address;
  int type = kGpu;
  int below = 0;  ///< bridges: number of the bus below
  std::uint16_t vendor = 0x10de;
  int generation = 4;
  int width = 16;
  int payload_code = 1;  ///< MaxPayload 128 << code
  int acs = -1;          ///< control register; -1: no capability
  int idle_generation = 1;
};

inline std::vector<std::uint8_t> config_of(const LinkedFunction& f) {
  std::vector<std::uint8_t> bytes(4096, 0);
  const auto word = [&](std::size_t at, int value) {
    bytes[at] = static_cast<std::uint8_t>(value);
    bytes[at + 1] = static_cast<std::uint8_t>(value >> 8);
  };
  word(0x00, f.vendor);
  word(0x02, 0x2684);
  word(0x06, 0x10);
  word(0x0a, f.type == kGpu ? 0x0300 : 0x0604);
  bytes[0x0e] = f.type == kGpu ? 0 : 1;
  bytes[0x19] = static_cast<std::uint8_t>(f.below);
  bytes[0x34] = 0x50;  // power management, then PCI Express
  word(0x50, 0x6001);
  word(0x60, 0x0010);
  word(0x62, 2 | f.type << 4);
  word(0x68, f.payload_code << 5);
  word(0x6c, f.generation | 16 << 4);
  word(0x72, f.idle_generation | f.width << 4);
  if (f.acs >= 0) {
    word(0x100, 0x000d);
    word(0x102, 1);
    word(0x106, f.acs);
  }
  return bytes;
}

/// A machine whose functions are given; files can be added.
class LinkedMachine {
 public:
  void add(const LinkedFunction& f) { add(f.address, config_of(f)); }
  void add(const std::string& address, const std::vector<std::uint8_t>& bytes) {
    text_ += address + " function\n";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 16 == 0) text_ += fmt::format("{:02x}:", i);
      text_ += fmt::format(" {:02x}{}", bytes[i], i % 16 == 15 ? "\n" : "");
    }
    text_ += '\n';
  }
  void dump(const std::string& text) { text_ = text; }
  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  void node(const std::string& address, int node) {
    file("sys/bus/pci/devices/" + address + "/numa_node", fmt::format("{}\n", node));
  }
  Result<std::vector<std::vector<Path>>> look(const std::vector<std::string>& gpus) {
    file("lspci-xxxx.txt", text_);
    const Root root = Root::open(directory_.path()).value();
    RecordedRunner runner(root);
    return paths_between(Host(root, runner), gpus);
  }
  Path pair(const std::string& one, const std::string& other) { return look({one, other}).value()[0][1]; }

 private:
  TemporaryDirectory directory_;
  std::string text_;
};

/// Two GPUs, 01:00.0 and 02:00.0, each below a root port of `vendor`.
inline void add_two(LinkedMachine& machine, std::uint16_t vendor, int generation = 4, int payload_code = 1,
                    int width = 16) {
  for (int i = 1; i <= 2; ++i) {
    machine.add({fmt::format("0000:00:0{}.0", i), kRoot, i, vendor, 5, width, 2});
    machine.add({fmt::format("0000:0{}:00.0", i), kGpu, 0, 0x10de, generation, width, payload_code});
  }
}

/// Two switches below a root port each, two GPUs below each switch: 03, 04 and 13, 14. Uplinks are x4.
inline void add_switches(LinkedMachine& machine, int acs) {
  for (const int base : {0x00, 0x10}) {
    const auto at = [&](int bus) { return fmt::format("0000:{:02x}:00.0", base + bus); };
    machine.add({fmt::format("0000:00:{:02x}.0", base / 16 + 1), kRoot, base + 1, kAmd, 4, 4, 1});
    machine.add({at(1), kUp, base + 2, 0x1000, 4, 4, 1});
    for (int i = 0; i < 2; ++i) {
      machine.add({fmt::format("0000:{:02x}:{:02x}.0", base + 2, i), kDown, base + 3 + i, 0x1000, 4, 16, 1, acs});
      machine.add({at(3 + i)});
    }
  }
}

inline bool share(const Path& one, const Path& other) {
  return std::ranges::find_first_of(one.shared, other.shared) != one.shared.end();
}

inline const std::string kOne = "0000:01:00.0";
inline const std::string kTwo = "0000:02:00.0";

}  // namespace p2pd::test
