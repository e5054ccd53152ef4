// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace p2pd::sim {

/// All of a file; nothing if it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& file);

/// A PCI function by its folder in sysfs. Throws std::runtime_error if a required file is missing.
class PciFunction {
 public:
  /// `folder` may be a link, as those of /sys/bus/pci/devices are.
  explicit PciFunction(const std::filesystem::path& folder);

  std::string address() const { return folder_.filename(); }  ///< "0000:01:00.0"
  std::string line(const char* name) const;
  unsigned long number(const char* name) const;
  std::string driver() const;                     ///< empty: none
  std::optional<std::string> iommu_type() const;  ///< of its group, "identity"; nothing: it is in none
  std::uint64_t bar_bytes(std::size_t bar) const;
  /// The ports above it, from the root port down, and itself.
  std::vector<PciFunction> way() const;

  double link_gb_s() const;                      ///< of the link in force, one way, raw
  int link_generation(const char* speed) const;  ///< of a file with a speed, "max_link_speed"
  int max_payload_bytes() const;                 ///< in force
  unsigned acs_control() const;                  ///< 0 if there is no such capability

  bool operator==(const PciFunction&) const = default;

 private:
  double transfers(const char* name) const;  ///< GT/s, of "16.0 GT/s PCIe"
  std::string config(std::size_t least) const;

  std::filesystem::path folder_;
};

/// Path between two functions.
struct PciPath {
  std::vector<PciFunction> ports;    ///< from one to the other, both of them too
  std::vector<PciFunction> parting;  ///< those at which the two paths diverge
  bool below_switch = false;         ///< they diverge below one root port
  bool one_switch = false;           ///< and below one switch
  bool intel_root = false;           ///< they diverge at root ports of Intel

  /// Bandwidth of the slowest link without packet headers; reads configuration space, so it needs root.
  double payload_gb_s() const;
};
PciPath path_between(const PciFunction& one, const PciFunction& other);

}  // namespace p2pd::sim
