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

/// Which bridges are above a function. Points into the functions that it is made of: they must outlive it.
class PciTree {
 public:
  /// Ports above a function, the nearest first.
  struct Way {
    std::vector<const PciDevice*> ports;
    bool whole = false;  ///< up to the root port. In a virtual machine not: ports that it makes up are left out
  };

  explicit PciTree(const std::vector<PciDevice>& devices);
  Way above(const PciDevice& device) const;
  static bool is_below(const PciDevice& bridge, const PciDevice& device);

 private:
  std::map<std::string, const PciDevice*> bridges_;  ///< by the bus right below: "0000:01"
};

/// Raw rate of `lanes` lanes, one way, in GB/s; 0 of a generation that is not known.
double raw_gb_s(int generation, int lanes);

/// What lies between two GPUs, from configuration space and sysfs; unknown where a virtual machine hides it.
enum class PathKind { nvlink, pcie_switch, one_socket, cross_socket, unknown };
std::string_view to_string(PathKind kind);

/// One link of a path, at the port below it.
struct Link {
  std::string address;        ///< its lower end: a GPU or the upstream port of a switch
  std::string upper;          ///< its upper end: a root port or the downstream port of a switch; empty: not visible
  int generation = 0;         ///< in force (LnkSta); 0: not readable
  int width = 0;              ///< lanes in force
  int width_most = 0;         ///< what both ends could
  int generation_most = 0;    ///< what both ends could (LnkCap)
  int max_payload_bytes = 0;  ///< in force (DevCtl)
};

/// The way between an unordered pair of GPUs. A rate of 0 means that it is not known.
struct Path {
  PathKind kind = PathKind::unknown;
  std::string topology;       ///< as nvidia-smi prints it: "PIX", "PXB", "PHB", "NODE", "SYS"; empty where not visible
  bool intel_root = false;  ///< Intel root ports split writes to 64 bytes
  std::vector<Link> links;  ///< from one GPU to the other; empty for NVLink
  std::vector<std::string>
      parting;  ///< ports below which the two ways part: downstream ports of a switch, or root ports
  /// Ports and sockets it passes: pairs that share one are not timed at once. Where ACS redirects the traffic below a
  /// switch up to the root port, the ports up there are among them.
  std::vector<std::string> shared;
  double raw_gb_s = 0;      ///< slowest link, by lanes and generation that both ends can, 128b/130b
  double payload_gb_s = 0;  ///< of it, what MaxPayload leaves for data: the limit that shares are taken of
  std::string arithmetic;   ///< how these came about: "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"; or why not
};

/// The paths of every unordered pair among `addresses`: result[j][i] is result[i][j], its links from the lower index to
/// the higher; the diagonal is empty. An address that is not on the bus has paths of unknown kind. An Error: no bus.
Result<std::vector<std::vector<Path>>> paths_between(const Host& host, const std::vector<std::string>& addresses);
/// The same of a bus that was read already.
std::vector<std::vector<Path>> paths_between(const Host& host, const std::vector<PciDevice>& devices,
                                             const std::vector<std::string>& addresses);

/// The path of a pair that NVLink joins, at `raw_gb_s` one way.
Path nvlink_path(double raw_gb_s);

/// Access Control Services of a port, the bits of its control register that keep or send peer traffic away from the
/// direct way; nothing where the capability is absent or unreadable.
inline constexpr std::uint16_t kAcsId = 0x0d;       ///< of the extended capability
inline constexpr std::size_t kAcsControlAt = 6;  ///< of the register, in the capability
inline constexpr std::uint16_t kAcsRequestRedirect = 0x04;
inline constexpr std::uint16_t kAcsCompletionRedirect = 0x08;
inline constexpr std::uint16_t kAcsUpstreamForwarding = 0x10;
inline constexpr std::uint16_t kAcsEgressControl = 0x20;
inline constexpr std::uint16_t kAcsDirectTranslated = 0x40;
std::optional<std::uint16_t> acs_control(const PciDevice& port);

}  // namespace p2pd
