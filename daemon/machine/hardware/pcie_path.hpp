// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
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

/// Access Control Services of a port: bits of its control register that keep or send peer traffic away from the
/// direct path; nullopt if the capability is absent or unreadable.
inline constexpr std::uint16_t kAcsId = 0x0d;    ///< id of the extended capability
inline constexpr std::size_t kAcsControlAt = 6;  ///< offset of the register in the capability
inline constexpr std::uint16_t kAcsRequestRedirect = 0x04;
inline constexpr std::uint16_t kAcsCompletionRedirect = 0x08;
inline constexpr std::uint16_t kAcsUpstreamForwarding = 0x10;
inline constexpr std::uint16_t kAcsEgressControl = 0x20;
inline constexpr std::uint16_t kAcsDirectTranslated = 0x40;
std::optional<std::uint16_t> acs_control(const PciDevice& port);

}  // namespace p2pd
