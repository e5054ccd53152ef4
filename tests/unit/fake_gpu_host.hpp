// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <string>

#include "temporary.hpp"

namespace p2pd::test {

/// Configuration space of one function, 4096 bytes.
class FakeConfig {
 public:
  void put(std::size_t at, unsigned value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) bytes_.at(at + i) = static_cast<char>(value >> 8 * i);
  }
  std::string text() const { return {bytes_.begin(), bytes_.end()}; }

 private:
  std::array<char, 4096> bytes_{};
};

/// A root directory with what a host with two RTX 4090, the patched driver 570.148.08 and its user space shows, all
/// gates open: 0000:01:00.0 and 0000:02:00.0, each below a root port of its own. Tests then change single files.
class FakeGpuHost {
 public:
  static constexpr const char* kVersion = "570.148.08";
  static constexpr const char* kFirst = "0000:00:01.0/0000:01:00.0";  ///< below /sys/devices/pci0000:00
  static constexpr const char* kSecond = "0000:00:02.0/0000:02:00.0";

  FakeGpuHost() {
    port("0000:00:01.0", 1);
    port("0000:00:02.0", 2);
    gpu(kFirst, 0x2684);
    gpu(kSecond, 0x2684);
    module(kVersion);
    write("proc/driver/nvidia/params", "EnableMSI: 1\nRegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\n");
    write("proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n");
    write("dev/nvidiactl", "p2p 0x11\n");
  }

  std::filesystem::path root() const { return directory_ / "root"; }
  std::filesystem::path libraries() const { return directory_ / "lib"; }

  void write(const std::string& name, const std::string& text) const {
    const auto file = root() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(root() / name); }

  /// The version that the loaded module reports.
  void module(const std::string& version) const {
    write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version +
                                            "  Release Build  (dvs-builder@host)  Fri Jan 24 21:06:34 UTC 2025\n"
                                            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) \n");
  }
  /// A port and the control register of its Access Control Services.
  void port(const std::string& way, unsigned below, unsigned acs = 0, int type = kRootPort) const {
    FakeConfig config = express(0x1022, 0x1483, 0x0604, type);
    config.put(0x0e, 1, 1);
    config.put(0x19, below, 1);
    config.put(0x1a, below + 1, 1);
    config.put(0x100, 0x0001000d, 4);
    config.put(0x106, acs, 2);
    function(way, config, 0x1022, 0x1483, 0x060400);
  }
  void gpu(const std::string& way, unsigned device, std::uint64_t bar1_gib = 32) const {
    function(way, express(0x10de, device, 0x0300, 0), 0x10de, device, 0x030000);
    const std::string address = way.substr(way.size() - 12);
    char line[128];
    std::snprintf(line, sizeof(line), "0x%016x 0x%016x 0x0\n0x%016llx 0x%016llx 0x14220c\n", 0xf0000000U, 0xf0ffffffU,
                  1ULL << 40, (1ULL << 40) + (bar1_gib << 30) - 1);
    write(folder(way) + "resource", line);
    const auto driver = root() / (folder(way) + "driver");
    if (!std::filesystem::is_symlink(driver)) std::filesystem::create_symlink("/sys/bus/pci/drivers/nvidia", driver);
    write("proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 30\nGPU UUID: \t GPU-00000000-0000-0000-0000-0000000000" +
              address.substr(5, 2) + "\nVideo BIOS: \t 95.02.3c.40.b6\n");
  }
  /// Puts a function into an IOMMU group of this type.
  void iommu(const std::string& way, const std::string& type) const {
    write(folder(way) + "iommu_group/type", type + "\n");
  }

  static std::string folder(const std::string& way) { return "sys/devices/pci0000:00/" + way + "/"; }

  static constexpr int kRootPort = 4;

 private:
  /// A header with a PCI Express capability: 16 GT/s, sixteen lanes, MaxPayload 256.
  static FakeConfig express(unsigned vendor, unsigned device, unsigned kind, int type) {
    FakeConfig config;
    config.put(0x00, vendor | device << 16, 4);
    config.put(0x06, 0x10, 2);
    config.put(0x0a, kind, 2);
    config.put(0x34, 0x40, 1);
    config.put(0x40, 0x10, 1);
    config.put(0x42, 2 | static_cast<unsigned>(type) << 4, 2);
    config.put(0x48, 1 << 5, 2);
    config.put(0x4c, 0x104, 4);
    config.put(0x52, 0x104, 2);
    return config;
  }
  void function(const std::string& way, const FakeConfig& config, unsigned vendor, unsigned device,
                unsigned kind) const {
    const auto hex = [](unsigned value) {
      char text[16];
      std::snprintf(text, sizeof(text), "0x%04x\n", value);
      return std::string(text);
    };
    const std::string at = folder(way);
    write(at + "config", config.text());
    write(at + "vendor", hex(vendor));
    write(at + "device", hex(device));
    write(at + "subsystem_vendor", hex(vendor));
    write(at + "subsystem_device", hex(device));
    write(at + "class", hex(kind));
    write(at + "numa_node", "0\n");
    write(at + "resource", "");
    for (const char* name : {"current_link_speed", "max_link_speed"}) write(at + name, "16.0 GT/s PCIe\n");
    for (const char* name : {"current_link_width", "max_link_width"}) write(at + name, "16\n");
    const auto links = root() / "sys/bus/pci/devices";
    std::filesystem::create_directories(links);
    const auto link = links / way.substr(way.size() - 12);
    if (!std::filesystem::is_symlink(link)) std::filesystem::create_symlink("../../../devices/pci0000:00/" + way, link);
  }

  TemporaryDirectory directory_;
};

}  // namespace p2pd::test
