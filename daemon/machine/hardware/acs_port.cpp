// SPDX-License-Identifier: MIT
#include "machine/hardware/acs_port.hpp"

#include <algorithm>
#include <map>

#include "machine/hardware/peer_groups.hpp"

namespace p2pd {

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
        ++port.pairs;
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
  return write_pci_word(host, device, *device.extended_capability(kAcsId) + kAcsControlAt, control);
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
