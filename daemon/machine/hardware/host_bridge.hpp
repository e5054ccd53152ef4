// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "machine/hardware/pcie_path.hpp"

namespace p2pd {

/// Host bridge of a root bus, and what config/host-bridges.yaml knows of peer traffic through it.
struct HostBridge {
  std::string address;  ///< function that Linux looks at: 00.0, or the first root port; empty: there is none
  std::string id;       ///< "8086:a700"
  std::string name;     ///< empty: not in the table
  std::string listed;   ///< in Linux's list for peer traffic: "yes", "one-bridge"; empty: it is not
  std::vector<std::string> reports;
};

/// Host bridges that peer traffic on `path` passes, one or two; none if it stays below a switch, or is not visible.
std::vector<HostBridge> host_bridges_on(const std::vector<PciDevice>& devices, const Path& path);

}  // namespace p2pd
