// SPDX-License-Identifier: MIT
#include "machine/hardware/host_bridge.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "base/json_members.hpp"

namespace p2pd {
namespace {

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

}  // namespace p2pd
