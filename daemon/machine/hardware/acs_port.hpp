// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/hardware/pcie_path.hpp"

namespace p2pd {

/// What drivers/pci/p2pdma.c of Linux calls redirection: requests, completions, egress control.
inline constexpr std::uint16_t kAcsRedirects = kAcsRequestRedirect | kAcsCompletionRedirect | kAcsEgressControl;

/// A port at which the ways of GPU pairs part: what Access Control Services redirect there leaves the direct way.
struct AcsPort {
  std::string address;
  bool of_switch = false;  ///< a downstream port of a switch, for one of the pairs at least; else a root port
  int pairs = 0;
  bool readable = false;                 ///< beyond 256 bytes of configuration space, where the capability lies
  std::optional<std::uint16_t> control;  ///< its control register; nothing where it is not readable or not there

  bool redirects() const { return (control.value_or(0) & kAcsRedirects) != 0; }
};

/// The ports at which pairs among `gpus` part, in the order of their addresses.
std::vector<AcsPort> acs_ports(const Host& host, const std::vector<PciDevice>& devices,
                               const std::vector<std::string>& gpus);

/// Writes the control register of the port `device`, until the next boot.
Result<void> write_acs_control(Host& host, const PciDevice& device, std::uint16_t control);

/// Kernel argument that turns redirection off at the ports that redirect, "pci=disable_acs_redir=A;B"; empty where none
/// does. Reference: Documentation/admin-guide/kernel-parameters.txt of Linux.
std::string acs_argument(const std::vector<AcsPort>& ports);

}  // namespace p2pd
