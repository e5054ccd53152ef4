// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catch.hpp"
#include "machines.hpp"
#include "temporary.hpp"

namespace p2pd::test {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = kMiB << 10;
inline constexpr int kGpu = 1, kRoot = 4, kUp = 5, kDown = 6;  // port types of the PCI Express capability

/// A function of a made bus; an RTX 4090 by default.
struct Function {
  std::string address = {};
  int type = kGpu;
  int below = 0;  ///< bridges: first and last bus below
  int last_below = 0;
  std::uint16_t vendor = 0x10de;
  std::uint16_t device = 0x2684;
  std::uint16_t kind = 0x0300;  ///< class, except of bridges
  int width = 16;
  int width_most = 16;
  int generation = 1;
  int acs = -1;  ///< control register; -1: no capability
  std::uint64_t bar1 = 32 * kGiB;
  std::uint64_t at = 0x2000000000;                             ///< address of BAR1, or of the window
  std::uint64_t window = 33 * kGiB;                            ///< of bridges, prefetchable
  std::vector<std::uint64_t> sizes = {256 * kMiB, 32 * kGiB};  ///< that the Resizable BAR capability supports
  bool resizable = true;
  std::size_t bytes = 4096;  ///< of configuration space that are readable
  bool lost = false;
};

class MadeBus {
 public:
  /// `patches` overwrite its configuration space: offset and value (32 bits).
  void add(const Function& f, const std::vector<std::pair<std::size_t, std::uint32_t>>& patches = {}) {
    std::vector<std::uint8_t> bytes = f.lost ? std::vector<std::uint8_t>(f.bytes, 0xff) : config_of(f);
    for (const auto& [at, value] : patches)
      for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    text_ += f.address + " function\n";
    for (std::size_t i = 0; i < f.bytes; ++i) {
      text_ +=
          fmt::format("{}{:02x}{}", i % 16 == 0 ? fmt::format("{:02x}: ", i) : " ", bytes[i], i % 16 == 15 ? "\n" : "");
    }
    text_ += '\n';
    if (f.lost) {
      for (const auto& [name, value] : {std::pair("vendor", "0x10de"), {"device", "0x2684"}, {"class", "0x030000"}})
        file("sys/bus/pci/devices/" + f.address + "/" + name, value);
    }
    const bool gpu = f.type == kGpu;
    const std::uint64_t last = f.at + f.bar1 - 1;
    if (const std::uint64_t length = gpu ? f.bar1 : f.window; length > 0)
      ranges_.push_back(
          {f.at, length, gpu ? f.address : fmt::format("PCI Bus {}:{:02x}", f.address.substr(0, 4), f.below)});
    resource(f.address, gpu && f.bar1 > 0 ? fmt::format("0x0 0x0 0x0\n{:#x} {:#x} 0x14220c\n", f.at, last)
                                          : std::string("0x0 0x0 0x0\n0x0 0x0 0x0\n"));
  }
  /// A root port and a GPU below it: 00:0N.0 and 0N:00.0.
  void add_slot(int bus, Function gpu = {}, Function port = {}) {
    port.address = fmt::format("0000:00:{:02x}.0", bus);
    port.type = kRoot;
    port.below = port.last_below = bus;
    port.vendor = 0x1022;
    gpu.address = fmt::format("0000:{:02x}:00.0", bus);
    gpu.at = port.at = 0x2000000000 + static_cast<std::uint64_t>(bus) * 64 * kGiB;
    add(port);
    add(gpu);
  }
  void resource(const std::string& address, const std::string& content) {
    file("sys/bus/pci/devices/" + address + "/resource", content);
  }
  /// Puts a function into an IOMMU group of its own, of a type.
  void group(const std::string& address, const std::string& type) {
    file("sys/kernel/iommu_groups/7/type", type + "\n");
    std::filesystem::create_symlink("../../../../kernel/iommu_groups/7",
                                    directory_ / ("sys/bus/pci/devices/" + address + "/iommu_group"));
  }
  /// Adds an address range of /proc/iomem; a root bus has a range named "PCI Bus 0000:00".
  void range(std::uint64_t first, std::uint64_t bytes, const std::string& name) {
    ranges_.push_back({first, bytes, name});
  }
  /// Gives the root bus exactly the windows that were added.
  void no_room() {
    for (const Range& one : std::vector<Range>(ranges_))
      if (one.name.starts_with("PCI Bus ")) range(one.first, one.bytes, "PCI Bus 0000:00");
  }
  /// /proc/iomem of what was added: each range below the one that holds it. `hidden`: as everybody but root sees it.
  void iomem(bool hidden = false) {
    const auto place = [](const Range& one) {  // of equal ranges that of the bus nearer to the root is above
      return std::tuple(one.first, ~one.bytes, !one.name.starts_with("PCI Bus "), one.name);
    };
    std::ranges::sort(ranges_, {}, place);
    std::string text = "00001000-0009ffff : System RAM\n";
    std::vector<Range> above;
    for (const Range& one : ranges_) {
      while (!above.empty() && above.back().first + above.back().bytes <= one.first) above.pop_back();
      text += fmt::format("{:{}}{:08x}-{:08x} : {}\n", "", 2 * above.size(), hidden ? 0 : one.first,
                          hidden ? 0 : one.first + one.bytes - 1, one.name);
      above.push_back(one);
    }
    file("proc/iomem", text);
  }
  void remove(const std::string& path) { std::filesystem::remove(directory_ / path); }
  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  Result<Finding> try_look(const Probe& probe, const Parameters& parameters = Parameters::object()) {
    file("lspci-xxxx.txt", text_);
    return look_at(probe, directory_.path(), parameters);
  }
  Finding look(const Probe& probe, const Parameters& parameters = Parameters::object()) {
    return try_look(probe, parameters).value();
  }
  /// Result of `read` on the machine as a Host.
  template <class Read>
  auto see(Read read) {
    file("lspci-xxxx.txt", text_);
    const Root root = Root::open(directory_.path()).value();
    RecordedRunner runner(root);
    return read(Host(root, runner));
  }
  static Result<Finding> look_at(const Probe& probe, const std::filesystem::path& machine,
                                 const Parameters& parameters = Parameters::object()) {
    const Root root = Root::open(machine).value();
    RecordedRunner runner(root);
    return probe.check(Host(root, runner), parameters);
  }
  static Finding recorded(const Probe& probe, const std::string& name) {
    return look_at(probe, machine_path(name)).value();
  }
  static std::vector<std::uint8_t> config_of(const Function& f) {
    std::vector<std::uint8_t> bytes(4096, 0);
    const auto put = [&](std::size_t at, std::uint64_t value, int size) {
      for (int i = 0; i < size; ++i)
        bytes[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(value >> (8 * i));
    };
    const bool gpu = f.type == kGpu;
    put(0x00, f.vendor, 2);
    put(0x02, f.device, 2);
    put(0x06, 0x10, 2);
    put(0x0a, gpu ? f.kind : 0x0604, 2);
    bytes[0x0e] = gpu ? 0 : 1;
    bytes[0x34] = 0x60;
    put(0x60, 0x0010, 2);
    put(0x62, static_cast<std::uint64_t>(2 | f.type << 4), 2);
    put(0x68, 0x2010 | 1 << 5, 2);  // MaxPayload 256, read requests 512, relaxed ordering
    put(0x6c, static_cast<std::uint64_t>(4 | f.width_most << 4), 4);
    put(0x72, static_cast<std::uint64_t>(f.generation | f.width << 4), 2);
    if (gpu) {
      put(0x14, (f.at & 0xfffffff0) | 0xc, 4);
      put(0x18, f.at >> 32, 4);
    } else {
      put(0x19, static_cast<std::uint64_t>(f.below | f.last_below << 8), 2);
      const std::uint64_t last = f.at + f.window - 1;
      put(0x20, 0x0000fff0, 4);  // closed
      put(0x24, f.window == 0 ? 0x0001fff1 : (f.at >> 16 & 0xfff0) | 1, 2);
      put(0x26, f.window == 0 ? 1 : (last >> 16 & 0xfff0) | 1, 2);
      put(0x28, f.window == 0 ? 0 : f.at >> 32, 4);
      put(0x2c, f.window == 0 ? 0 : last >> 32, 4);
    }
    const bool rebar = gpu && f.resizable;
    put(0x100, rebar ? 0x20010001 : f.acs >= 0 ? 0x30010001 : 0x00010001, 4);  // AER, then what there is
    if (rebar) {
      put(0x200, 0x00010015, 4);
      std::uint64_t sizes = 0;
      for (const std::uint64_t size : f.sizes) sizes |= size / kMiB << 4;
      put(0x204, sizes, 4);
      std::uint64_t code = 0;
      while (kMiB << (code + 1) <= f.bar1) ++code;
      put(0x208, 1 | 1 << 5 | code << 8, 4);
    }
    if (f.acs >= 0 && !gpu) {
      put(0x300, 0x0001000d, 4);
      put(0x306, static_cast<std::uint64_t>(f.acs), 2);
    }
    return bytes;
  }

 private:
  struct Range {
    std::uint64_t first;
    std::uint64_t bytes;
    std::string name;
  };

  TemporaryDirectory directory_;
  std::string text_;
  std::vector<Range> ranges_;
};

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Expected finding of a probe on a bus.
struct BusVerdict {
  const Probe* probe;
  Verdict verdict;
  const char* summary;    ///< a part of it
  const char* next = "";  ///< likewise
};

/// A bus, and the expected findings of probes.
struct BusCase {
  const char* name;
  std::function<void(MadeBus&)> make;
  std::vector<BusVerdict> expected;
};

inline void check(const std::vector<BusCase>& cases) {
  for (const BusCase& one : cases) {
    CAPTURE(one.name);
    MadeBus bus;
    one.make(bus);
    for (const BusVerdict& expected : one.expected) {
      const Finding finding = bus.look(*expected.probe);
      CAPTURE(expected.probe->id, finding.summary, finding.next);
      CHECK(finding.verdict == expected.verdict);
      CHECK(contains(finding.summary, expected.summary));
      CHECK(contains(finding.next, expected.next));
      std::cout << fmt::format("{:<42} {}: {}: {}\n", one.name, expected.probe->id, to_string(finding.verdict),
                               finding.summary);
    }
  }
}

}  // namespace p2pd::test
