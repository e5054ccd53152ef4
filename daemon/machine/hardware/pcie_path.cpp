// SPDX-License-Identifier: MIT
// Finds the path between two GPUs: up from each, bridge by bridge, to where they meet, and the rate of its slowest
// link. The bus numbers in the bridges' own registers give the tree, so that a dump and a live machine read alike.
// Classes such as PIX or SYS do not show the rate: in a host with a NUMA node for each GPU all are SYS, and still four
// share a socket. Reads configuration space; sysfs `numa_node`, `cpulist` of the node and `physical_package_id` of its
// first CPU. Reference: PCI Express Base Specification, 7.5.3 (PCI Express capability), 2.2 (packet headers), 7.7.11
// (ACS).
#include "machine/hardware/pcie_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace p2pd {
namespace {

constexpr std::uint8_t kExpressId = 0x10;
constexpr std::uint16_t kIntel = 0x8086;
constexpr int kIntelSplitBytes = 64;
constexpr int kWriteOverheadBytes = 24;  // framing, sequence number, header and LCRC of a memory write
constexpr char kUnseen[] = "unseen";     // entry of Path::shared for an unseen part of the path: no pair has it alone

constexpr std::array<std::string_view, 5> kKinds = {"nvlink", "pcie_switch", "one_socket", "cross_socket", "unknown"};
static_assert(kKinds.size() == static_cast<std::size_t>(PathKind::unknown) + 1);

/// GB/s of a lane by generation; from 3 on 128b/130b (for the flits of 6, the rest beside CRC and FEC).
constexpr std::array<double, 7> kLane = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};

// Port types of the capability whose own link is below them.
constexpr int kRootPort = 4;
constexpr int kDownstreamPort = 6;

/// PCI Express capability of one function; zeros if it cannot be read or makes no sense.
struct Express {
  int type = -1;
  int generation = 0;
  int width = 0;
  int generation_most = 0;
  int width_most = 0;
  int max_payload_bytes = 0;
};

Express express(const PciDevice& device) {
  const auto at = device.capability(kExpressId);
  if (!at || *at + 0x14 > device.config.size()) return {};
  const int control = device.word(*at + 0x08);
  const int can = device.word(*at + 0x0c);
  const int status = device.word(*at + 0x12);
  const auto generation = [](int speed) { return (speed & 0xf) < static_cast<int>(kLane.size()) ? speed & 0xf : 0; };
  const auto width = [](int link) { return (link >> 4 & 0x3f) <= 32 ? link >> 4 & 0x3f : 0; };
  const int payload = control >> 5 & 7;
  return {device.word(*at + 0x02) >> 4 & 0xf, generation(status), width(status), generation(can), width(can),
          payload <= 5 ? 128 << payload : 0};
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

bool has_several_nodes(const Host& host) {
  const auto names = host.names("/sys/devices/system/node");
  return std::ranges::count_if(names, [](const std::string& name) {
           return name.starts_with("node") && number(std::string_view(name).substr(4));
         }) > 1;
}

/// NUMA node of a function; nullopt if firmware does not report it and there are several.
std::optional<int> node_of(const Host& host, const std::string& address) {
  const int node = number(host.line("/sys/bus/pci/devices/" + address + "/numa_node").value_or("")).value_or(-1);
  if (node < 0 && has_several_nodes(host)) return std::nullopt;
  return std::max(node, 0);
}

/// Socket of a node, "socket 1", or "node 3" if the node's CPU package is not readable.
std::string socket_of(const Host& host, int node) {
  const auto cpu = number(host.line(fmt::format("/sys/devices/system/node/node{}/cpulist", node)).value_or(""));
  const std::string package =
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", cpu.value_or(-1));
  const auto socket = cpu ? number(host.line(package).value_or("")) : std::nullopt;
  return socket ? fmt::format("socket {}", *socket) : fmt::format("node {}", node);
}

/// Path from one GPU up.
struct Side {
  std::vector<const PciDevice*> ports;  ///< the GPU, then the ports above it up to the root port
  bool whole = false;                   ///< the path ends at a root port; in a virtual machine it may not
  std::optional<int> node;              ///< NUMA node
  std::string socket;                   ///< empty if not known
};

Side side_of(const Host& host, const std::vector<PciDevice>& devices, const PciTree& tree, const std::string& address) {
  Side side;
  const auto gpu = std::ranges::find(devices, address, &PciDevice::address);
  if (gpu == devices.end()) return side;
  side.ports.push_back(&*gpu);
  side.node = node_of(host, address);
  if (side.node) side.socket = socket_of(host, *side.node);
  const PciTree::Way way = tree.above(*gpu);
  side.ports.insert(side.ports.end(), way.ports.begin(), way.ports.end());
  side.whole = way.whole;
  return side;
}

/// A link by the functions at its two ends; `upper` is null if it cannot be seen.
struct Ends {
  const PciDevice* lower;
  const PciDevice* upper;
};

/// Links whose lower end is among the ports `first` to `last` of a side. The ports of one switch have none between
/// them.
std::vector<Ends> links_among(const Side& side, std::size_t first, std::size_t last) {
  std::vector<Ends> links;
  for (std::size_t i = first; i < last; ++i) {
    const int type = express(*side.ports[i]).type;
    const PciDevice* upper = i + 1 < side.ports.size() ? side.ports[i + 1] : nullptr;
    const bool top = upper == nullptr && side.whole;
    if (top || type == kRootPort || type == kDownstreamPort) continue;
    links.push_back({side.ports[i], upper});
  }
  return links;
}

/// Makes a link of its ends. An idle GPU lowers the speed, so that a copy gets the speed that both ends support.
Link link_of(const Ends& ends) {
  const Express lower = express(*ends.lower);
  const Express upper = ends.upper != nullptr ? express(*ends.upper) : lower;
  Link link;
  link.address = ends.lower->address;
  if (ends.upper != nullptr) link.upper = ends.upper->address;
  link.generation = lower.generation;
  link.width = std::min(lower.width, upper.width);
  link.width_most = std::min(lower.width_most, upper.width_most);
  link.generation_most = std::min(lower.generation_most, upper.generation_most);
  link.max_payload_bytes = std::min(lower.max_payload_bytes, upper.max_payload_bytes);
  return link;
}

double raw_gb_s(const Link& link) { return p2pd::raw_gb_s(link.generation_most, link.width); }

void fill_rates(Path& path) {
  const auto unreadable = [](const Link& link) { return raw_gb_s(link) <= 0 || link.max_payload_bytes == 0; };
  const auto blind = std::ranges::find_if(path.links, unreadable);
  if (blind != path.links.end() || path.links.empty()) {
    path.arithmetic = path.links.empty() ? "no link between them is visible"
                                         : fmt::format("link of {} not readable (root could)", blind->address);
    return;
  }
  const auto [slowest, fastest] = std::ranges::minmax_element(path.links, {}, raw_gb_s);
  path.raw_gb_s = raw_gb_s(*slowest);
  const int most = std::ranges::min_element(path.links, {}, &Link::max_payload_bytes)->max_payload_bytes;
  const int payload = path.intel_root ? std::min(most, kIntelSplitBytes) : most;
  const double share = static_cast<double>(payload) / (payload + kWriteOverheadBytes);
  path.payload_gb_s = path.raw_gb_s * share;
  const std::string where = raw_gb_s(*fastest) > path.raw_gb_s ? " at " + slowest->address : "";
  const std::string packets =
      path.intel_root ? fmt::format("Intel root ports split to {} B", payload) : fmt::format("MaxPayload {}", payload);
  path.arithmetic = fmt::format("Gen{} x{} {:.1f} GB/s{}, {}: {:.1f} %", slowest->generation_most, slowest->width,
                                path.raw_gb_s, where, packets, 100 * share);
}

/// Number of ports at the top that both paths pass.
std::size_t common_ports(const Side& one, const Side& other) {
  const auto differ = std::mismatch(one.ports.rbegin(), one.ports.rend(), other.ports.rbegin(), other.ports.rend());
  return static_cast<std::size_t>(differ.first - one.ports.rbegin());
}

PathKind kind_of(const Side& one, const Side& other, bool meet) {
  if (!one.whole || !other.whole) return PathKind::unknown;
  if (meet) return PathKind::pcie_switch;
  if (one.socket.empty() || other.socket.empty()) return PathKind::unknown;
  return one.socket == other.socket ? PathKind::one_socket : PathKind::cross_socket;
}

/// Class that nvidia-smi prints: how far up two paths meet, `common` ports from the top.
std::string topology_of(const Side& one, const Side& other, std::size_t common) {
  constexpr std::size_t kOneSwitch = 2;  // the GPU and its downstream port, both below the place where they meet
  if (!one.whole || !other.whole) return {};
  if (common > 0) return std::max(one.ports.size(), other.ports.size()) - common <= kOneSwitch ? "PIX" : "PXB";
  if (one.ports.back()->bus() == other.ports.back()->bus()) return "PHB";
  if (!one.node || !other.node) return {};
  return one.node == other.node ? "NODE" : "SYS";
}

bool redirects(const Side& side, std::size_t below) {
  return below > 0 && (acs_control(*side.ports[below - 1]).value_or(0) & kAcsRequestRedirect) != 0;
}

Path path_of(const Side& one, const Side& other) {
  const std::size_t common = common_ports(one, other);
  Path path;
  path.kind = kind_of(one, other, common > 0);
  path.topology = topology_of(one, other, common);
  const bool below_switch = path.kind == PathKind::pcie_switch;
  const bool over_root =
      !below_switch || redirects(one, one.ports.size() - common) || redirects(other, other.ports.size() - common);
  for (const Side* side : {&one, &other}) {
    const std::size_t below = side->ports.size() - common;
    std::vector<Link> links;
    for (const Ends& ends : links_among(*side, 0, below)) links.push_back(link_of(ends));
    if (side == &other) std::ranges::reverse(links);
    path.links.insert(path.links.end(), links.begin(), links.end());
    for (const Ends& ends : links_among(*side, 0, over_root ? side->ports.size() : below)) {
      if (ends.upper != nullptr) path.shared.push_back(ends.upper->address);
    }
    if (over_root) path.shared.push_back(side->whole && !side->socket.empty() ? side->socket : kUnseen);
    if (below > 1 && side->whole) path.parting.push_back(side->ports[below - 1]->address);
    if (!below_switch && side->whole) path.intel_root |= side->ports.back()->vendor_id == kIntel;
  }
  std::ranges::sort(path.shared);
  path.shared.erase(std::unique(path.shared.begin(), path.shared.end()), path.shared.end());
  fill_rates(path);
  if (!one.whole || !other.whole) path.arithmetic += "; only the GPUs' own links are visible";
  return path;
}

Path not_there(const std::string& address) {
  Path path;
  path.shared = {kUnseen};
  path.arithmetic = address + " is not on the PCI bus";
  return path;
}

}  // namespace

double raw_gb_s(int generation, int lanes) {
  const auto known = generation > 0 && generation < static_cast<int>(kLane.size());
  return known ? kLane.at(static_cast<std::size_t>(generation)) * lanes : 0;
}

std::string_view to_string(PathKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

std::vector<std::vector<Path>> paths_between(const Host& host, const std::vector<PciDevice>& devices,
                                             const std::vector<std::string>& addresses) {
  const PciTree tree(devices);
  std::vector<Side> sides;
  for (const std::string& address : addresses) sides.push_back(side_of(host, devices, tree, address));
  std::vector<std::vector<Path>> paths(sides.size(), std::vector<Path>(sides.size()));
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (std::size_t j = i + 1; j < sides.size(); ++j) {
      const bool both = !sides[i].ports.empty() && !sides[j].ports.empty();
      paths[i][j] = both ? path_of(sides[i], sides[j]) : not_there(addresses[sides[i].ports.empty() ? i : j]);
      paths[j][i] = paths[i][j];
    }
  }
  return paths;
}

Result<std::vector<std::vector<Path>>> paths_between(const Host& host, const std::vector<std::string>& addresses) {
  return paths_between(host, TRY(pci_devices(host)), addresses);
}

Path nvlink_path(double raw_gb_s) {
  Path path;
  path.kind = PathKind::nvlink;
  path.raw_gb_s = raw_gb_s;
  path.payload_gb_s = raw_gb_s;
  path.arithmetic = fmt::format("NVLink {:.1f} GB/s", raw_gb_s);
  return path;
}

std::optional<std::uint16_t> acs_control(const PciDevice& port) {
  const auto at = port.extended_capability(kAcsId);
  if (!at || *at + 8U > port.config.size()) return std::nullopt;
  return port.word(*at + kAcsControlAt);
}

}  // namespace p2pd
