// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Address of a PCI function, or of all functions of a device, as logs write it: "0000:01:00.0", "01:00.0",
/// "0x01:0x00.0", "0000:01:00", each with capitals and up to eight digits of domain.
struct PciAddress {
  std::optional<std::uint32_t> domain;  ///< VT-d, and AMD-Vi before Linux 5.19, print none
  std::uint32_t bus = 0;
  std::uint32_t device = 0;
  std::optional<std::uint32_t> function;  ///< an Xid has none

  /// Checks that `function` is this one, or one of these.
  bool names(const PciAddress& function) const;
};

/// Parses the whole of `text`; nullopt if it is no address.
std::optional<PciAddress> parse_pci_address(std::string_view text);

/// Device that a message of the kernel blames: the first address in it; for a port that forwards an error (AER:
/// "error received: 0000:01:00.0"), the one after "received".
std::optional<PciAddress> blamed_device(std::string_view message);

/// GPUs, and the ports above them, among the functions of a machine.
class GpuFunctions {
 public:
  /// `gpus`: addresses, also of GPUs that are not among `all`.
  GpuFunctions(const std::vector<PciDevice>& all, const std::vector<std::string>& gpus);

  /// Checks that `address` names one of them. Without a domain it means domain 0, if there is such a function.
  bool hold(const PciAddress& address) const;

  /// Checks that they are all NVIDIA GPUs of the machine: what the driver reports without an address is about them.
  bool hold_all_gpus() const { return all_gpus_; }

 private:
  std::vector<PciAddress> ours_, others_;
  bool all_gpus_ = true;
};

}  // namespace p2pd
