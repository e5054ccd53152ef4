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

#include "base/json.hpp"
#include "base/json_members.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {
namespace {

constexpr std::uint16_t kIntel = 0x8086;
constexpr int kIntelSplitBytes = 64;
constexpr int kWriteOverheadBytes = 24;  // framing, sequence number, header and LCRC of a memory write
constexpr char kUnseen[] = "unseen";     // entry of Path::shared for an unseen part of the path: no pair has it alone

constexpr std::string_view kKinds[] = {"nvlink", "pcie_switch", "one_socket", "cross_socket", "unknown"};
static_assert(std::size(kKinds) == static_cast<std::size_t>(PathKind::unknown) + 1);

/// GB/s of a lane by generation; from 3 on 128b/130b (for the flits of 6, the rest beside CRC and FEC).
constexpr std::array<double, 7> kLane = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};

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
  const auto at = device.capability(PCI_CAP_ID_EXP);
  if (!at || *at + PCI_EXP_LNKSTA + 2 > device.config.size()) return {};
  const int type = (device.word(*at + PCI_EXP_FLAGS) & PCI_EXP_FLAGS_TYPE) >> 4;
  const int can = device.word(*at + PCI_EXP_LNKCAP);
  const int status = device.word(*at + PCI_EXP_LNKSTA);
  const int payload = (device.word(*at + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_PAYLOAD) >> 5;
  const auto generation = [](int link) { return (link & 0xf) < static_cast<int>(kLane.size()) ? link & 0xf : 0; };
  const auto width = [](int link) { return (link >> 4 & 0x3f) <= 32 ? link >> 4 & 0x3f : 0; };
  return {type, generation(status), width(status), generation(can), width(can), payload <= 5 ? 128 << payload : 0};
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// NUMA node of a function; nullopt if firmware does not report it and there are several.
std::optional<int> node_of(const Host& host, const std::string& address) {
  const auto node = number(host.line(sysfs_path(address, "numa_node")).value_or(""));
  if (node && *node >= 0) return node;
  const auto nodes = std::ranges::count_if(host.names("/sys/devices/system/node"), [](const std::string& name) {
    return name.starts_with("node") && number(std::string_view(name).substr(4));
  });
  return nodes > 1 ? std::nullopt : std::optional(0);
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
  std::vector<const PciDevice*> ports;              ///< the GPU, then the ports above it up to the root port
  bool whole = false;                               ///< the path ends at a root port; in a virtual machine it may not
  std::optional<int> node;                          ///< NUMA node
  std::string socket;                               ///< empty if not known
  std::vector<std::pair<std::size_t, Link>> links;  ///< each with the index of the port at its lower end
};

/// Links between the ports of a side; those of one switch have none between them. An idle GPU lowers the speed, so that
/// a copy gets the speed that both ends support.
void find_links(Side& side) {
  for (std::size_t i = 0; i < side.ports.size(); ++i) {
    const PciDevice* above = i + 1 < side.ports.size() ? side.ports[i + 1] : nullptr;
    const Express lower = express(*side.ports[i]);
    const bool own_is_below = lower.type == PCI_EXP_TYPE_ROOT_PORT || lower.type == PCI_EXP_TYPE_DOWNSTREAM;
    if (own_is_below || (above == nullptr && side.whole)) continue;
    const Express upper = above != nullptr ? express(*above) : lower;
    Link link;
    link.address = side.ports[i]->address;
    if (above != nullptr) link.upper = above->address;
    link.generation = lower.generation;
    link.width = std::min(lower.width, upper.width);
    link.width_most = std::min(lower.width_most, upper.width_most);
    link.generation_most = std::min(lower.generation_most, upper.generation_most);
    link.max_payload_bytes = std::min(lower.max_payload_bytes, upper.max_payload_bytes);
    side.links.emplace_back(i, std::move(link));
  }
}

Side side_of(const Host& host, const std::vector<PciDevice>& devices, const PciTree& tree, const std::string& address) {
  Side side;
  const auto gpu = std::ranges::find(devices, address, &PciDevice::address);
  if (gpu == devices.end()) return side;
  side.node = node_of(host, address);
  if (side.node) side.socket = socket_of(host, *side.node);
  PciTree::Way way = tree.above(*gpu);
  side.ports = std::move(way.ports);
  side.ports.insert(side.ports.begin(), &*gpu);
  side.whole = way.whole;
  find_links(side);
  return side;
}

double rate_of(const Link& link) { return raw_gb_s(link.generation_most, link.width); }

void fill_rates(Path& path) {
  const auto unreadable = [](const Link& link) { return rate_of(link) <= 0 || link.max_payload_bytes == 0; };
  const auto blind = std::ranges::find_if(path.links, unreadable);
  if (blind != path.links.end() || path.links.empty()) {
    path.arithmetic = path.links.empty() ? "no link between them is visible"
                                         : fmt::format("link of {} not readable (root could)", blind->address);
    return;
  }
  const auto [slowest, fastest] = std::ranges::minmax_element(path.links, {}, rate_of);
  path.raw_gb_s = rate_of(*slowest);
  const int most = std::ranges::min_element(path.links, {}, &Link::max_payload_bytes)->max_payload_bytes;
  const int payload = path.intel_root ? std::min(most, kIntelSplitBytes) : most;
  const double share = static_cast<double>(payload) / (payload + kWriteOverheadBytes);
  path.payload_gb_s = path.raw_gb_s * share;
  const std::string where = rate_of(*fastest) > path.raw_gb_s ? " at " + slowest->address : "";
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
  return below > 0 && (acs_control(*side.ports[below - 1]).value_or(0) & PCI_ACS_RR) != 0;
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
    const std::size_t first = path.links.size();
    for (const auto& [at, link] : side->links) {
      if (at < below) path.links.push_back(link);
      if ((at < below || over_root) && !link.upper.empty()) path.shared.push_back(link.upper);
    }
    if (side == &other) std::reverse(path.links.begin() + static_cast<std::ptrdiff_t>(first), path.links.end());
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

constexpr std::string_view kBridgeTable =
#include "host-bridges.inc"  // config/host-bridges.yaml as JSON, made by the build
    ;

const nlohmann::json& table() {
  static const nlohmann::json kBridges = parse_json(kBridgeTable).at("bridges");
  return kBridges;
}

/// Function by which Linux knows the host bridge of `bus`: the first one, if it is 00.0 or a root port.
HostBridge host_bridge_of(const std::vector<PciDevice>& devices, const std::string& bus) {
  const auto first = std::ranges::find(devices, bus, &PciDevice::bus);
  if (first == devices.end() || !(first->address.ends_with(":00.0") || first->is_bridge())) return {};
  HostBridge bridge{first->address, first->id(), {}, {}, {}};
  const auto row = std::ranges::find_if(table(), [&](const nlohmann::json& one) {
    const std::string id = one.at("id");
    return id == bridge.id || (id.ends_with('*') && bridge.id.starts_with(id.substr(0, id.size() - 1)));
  });
  if (row == table().end()) return bridge;
  bridge.name = row->at("name");
  bridge.listed = row->value("linux", "");
  bridge.reports = json_texts(*row, "reports");
  return bridge;
}

}  // namespace

double raw_gb_s(int generation, int lanes) {
  const auto known = generation > 0 && generation < static_cast<int>(kLane.size());
  return known ? kLane.at(static_cast<std::size_t>(generation)) * lanes : 0;
}

std::string_view to_string(PathKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

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

std::vector<HostBridge> host_bridges_on(const std::vector<PciDevice>& devices, const Path& path) {
  std::vector<HostBridge> bridges;
  if (path.kind == PathKind::pcie_switch) return bridges;
  for (const std::string& port : path.parting) {
    HostBridge bridge = host_bridge_of(devices, port.substr(0, port.rfind(':')));
    if (!bridge.address.empty() && std::ranges::find(bridges, bridge.address, &HostBridge::address) == bridges.end())
      bridges.push_back(std::move(bridge));
  }
  return bridges;
}

std::optional<std::uint16_t> acs_control(const PciDevice& port) {
  const auto at = port.extended_capability(PCI_EXT_CAP_ID_ACS);
  if (!at || *at + PCI_ACS_CTRL + 2U > port.config.size()) return std::nullopt;
  return port.word(*at + PCI_ACS_CTRL);
}

std::vector<AcsPort> acs_ports(const Host& host, const std::vector<PciDevice>& devices,
                               const std::vector<std::string>& gpus) {
  const auto paths = paths_between(host, devices, gpus);
  std::map<std::string, AcsPort> found;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = i + 1; j < paths.size(); ++j) {
      if (!may_be_peers(devices, gpus[i], gpus[j])) continue;
      for (const std::string& address : paths[i][j].parting) {
        AcsPort& port = found[address];
        port.of_switch = port.of_switch || paths[i][j].kind == PathKind::pcie_switch;
      }
    }
  }
  std::vector<AcsPort> ports;
  for (auto& [address, port] : found) {
    const PciDevice& device = *std::ranges::find(devices, address, &PciDevice::address);
    port.address = address;
    port.readable = device.extended_readable && !device.is_lost();
    if (port.readable) port.control = acs_control(device);
    ports.push_back(port);
  }
  return ports;
}

Result<void> write_acs_control(Host& host, const PciDevice& device, std::uint16_t control) {
  if (!acs_control(device)) return fail(ErrorCode::not_found, device.address + " has no readable ACS control");
  return write_pci_word(host, device, *device.extended_capability(PCI_EXT_CAP_ID_ACS) + PCI_ACS_CTRL, control);
}

std::string acs_argument(const std::vector<AcsPort>& ports, std::vector<std::string> asked) {
  if (std::ranges::none_of(ports, &AcsPort::redirects)) return {};
  for (const AcsPort& port : ports)
    if (port.redirects() && std::ranges::find(asked, port.address) == asked.end()) asked.push_back(port.address);
  std::string argument;
  for (const std::string& address : asked) argument += (argument.empty() ? "pci=disable_acs_redir=" : ";") + address;
  return argument;
}

}  // namespace p2pd
