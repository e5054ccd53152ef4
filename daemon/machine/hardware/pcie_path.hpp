// SPDX-License-Identifier: MIT
#pragma once

#include <linux/pci_regs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Raw rate of `lanes` lanes, one way, in GB/s; 0 for a generation that is not known.
double raw_gb_s(int generation, int lanes);

/// Kind of path between two GPUs, from configuration space and sysfs; unknown if a virtual machine hides it.
enum class PathKind { nvlink, pcie_switch, one_socket, cross_socket, unknown };
std::string_view to_string(PathKind kind);

/// One link of a path, identified by its lower end.
struct Link {
  std::string address;        ///< lower end: a GPU or the upstream port of a switch
  std::string upper;          ///< upper end: a root port or the downstream port of a switch; empty: not visible
  int generation = 0;         ///< generation in force (LnkSta); 0: not readable
  int width = 0;              ///< lanes in force
  int width_most = 0;         ///< most lanes that both ends support
  int generation_most = 0;    ///< highest that both ends support (LnkCap)
  int max_payload_bytes = 0;  ///< size in force (DevCtl)
};

/// The path between an unordered pair of GPUs. A rate of 0 means that it is not known.
struct Path {
  PathKind kind = PathKind::unknown;
  std::string topology;     ///< class that nvidia-smi prints: "PIX", "PXB", "PHB", "NODE", "SYS"; empty if not visible
  bool intel_root = false;  ///< Intel root ports split writes to 64 bytes
  std::vector<Link> links;  ///< links from one GPU to the other; empty for NVLink
  std::vector<std::string>
      parting;  ///< ports below which the two paths diverge: downstream ports of a switch, or root ports
  /// Ports and sockets on the path: pairs that share one are not timed at once. If ACS redirects the traffic below a
  /// switch up to the root port, the ports up there are among them.
  std::vector<std::string> shared;
  double raw_gb_s = 0;      ///< slowest link, by lanes and generation that both ends support, 128b/130b
  double payload_gb_s = 0;  ///< part that MaxPayload leaves for data: the limit that shares refer to
  std::string arithmetic;   ///< derivation: "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"; or why there is none
};

/// Paths of every unordered pair among `addresses`: result[j][i] is result[i][j], its links from the lower index to
/// the higher; the diagonal is empty. An address that is not on the bus has paths of unknown kind. An Error: no bus.
Result<std::vector<std::vector<Path>>> paths_between(const Host& host, const std::vector<std::string>& addresses);
/// Paths on a bus that was read already.
std::vector<std::vector<Path>> paths_between(const Host& host, const std::vector<PciDevice>& devices,
                                             const std::vector<std::string>& addresses);

/// Path of a pair that NVLink joins, at `raw_gb_s` one way.
Path nvlink_path(double raw_gb_s);

/// Host bridge of a root bus, and what config/host-bridges.yaml knows of peer traffic through it.
struct HostBridge {
  std::string address;  ///< function that Linux looks at: 00.0, or the first root port; empty: there is none
  std::string id;       ///< "8086:a700"
  std::string name;     ///< empty: not in the table
  std::string listed;   ///< in Linux's list for peer traffic: "yes", "one-bridge"; empty: it is not
  std::vector<std::string> reports;

  std::string text() const { return id + (name.empty() ? "" : " (" + name + ")"); }
};

/// Host bridges that peer traffic on `path` passes, one or two; none if it stays below a switch, or is not visible.
std::vector<HostBridge> host_bridges_on(const std::vector<PciDevice>& devices, const Path& path);

/// Control register of the Access Control Services of a port, PCI_ACS_*: it keeps or sends peer traffic away from the
/// direct path. nullopt if the capability is absent or unreadable.
std::optional<std::uint16_t> acs_control(const PciDevice& port);

/// Bits that drivers/pci/p2pdma.c of Linux calls redirection: requests, completions, egress control.
inline constexpr std::uint16_t kAcsRedirects = PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC;

/// A port at which the paths of GPU pairs diverge: traffic under ACS redirect there leaves the direct path.
struct AcsPort {
  std::string address;
  bool of_switch = false;  ///< downstream port of a switch, for at least one of the pairs; else a root port
  bool readable = false;   ///< configuration space beyond 256 bytes, which has the capability, is readable
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
