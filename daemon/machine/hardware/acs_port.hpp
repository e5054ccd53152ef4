// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/hardware/pcie_path.hpp"

namespace p2pd {

/// Bits that drivers/pci/p2pdma.c of Linux calls redirection: requests, completions, egress control.
inline constexpr std::uint16_t kAcsRedirects = kAcsRequestRedirect | kAcsCompletionRedirect | kAcsEgressControl;

/// A port at which the paths of GPU pairs diverge: traffic under ACS redirect there leaves the direct path.
struct AcsPort {
  std::string address;
  bool of_switch = false;  ///< downstream port of a switch, for at least one of the pairs; else a root port
  int pairs = 0;
  bool readable = false;  ///< configuration space beyond 256 bytes, which has the capability, is readable
  std::optional<std::uint16_t> control;  ///< control register; nullopt if it is not readable or absent

  bool redirects() const { return (control.value_or(0) & kAcsRedirects) != 0; }
};

/// Ports at which the paths of pairs among `gpus` diverge, in the order of their addresses.
std::vector<AcsPort> acs_ports(const Host& host, const std::vector<PciDevice>& devices,
                               const std::vector<std::string>& gpus);

/// Writes the control register of the port `device`; lasts until the next boot.
Result<void> write_acs_control(Host& host, const PciDevice& device, std::uint16_t control);

/// Kernel argument that disables ACS redirect at the ports that have it and at those `asked`, which the running kernel
/// was told: "pci=disable_acs_redir=A;B"; empty if none has it. Reference:
/// Documentation/admin-guide/kernel-parameters.txt of Linux.
std::string acs_argument(const std::vector<AcsPort>& ports, std::vector<std::string> asked = {});

}  // namespace p2pd
