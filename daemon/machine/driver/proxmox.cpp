// SPDX-License-Identifier: MIT
// Guests of Proxmox VE by their configuration. Formats: pct.conf(5), qm.conf(5); a file has the options of its guest
// first, then those of each snapshot after a line "[NAME]".
#include "machine/driver/proxmox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>

#include "machine/driver/gpu_holders.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kContainers = "/etc/pve/lxc", kMachines = "/etc/pve/qemu-server";

/// Calls `take` for each option of the guest: "hostpci0", "0000:01:00,pcie=1".
void for_options(const std::string& text, const std::function<void(const std::string&, const std::string&)>& take) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !line.starts_with('[');) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && !line.starts_with('#')) take(line.substr(0, colon), line.substr(colon + 2));
  }
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, mark);) parts.push_back(std::move(part));
  return parts;
}

/// Value of `key` in "map id=10de:2684,node=pve1,path=0000:01:00.0"; empty: it is not there.
std::string property(const std::string& list, std::string_view key) {
  for (const std::string& part : split(list, ','))
    if (part.starts_with(key) && part.substr(key.size()).starts_with('=')) return part.substr(key.size() + 1);
  return {};
}

/// Addresses of a mapping of the datacentre on this node, "0000:01:00.0;0000:01:00.1".
std::string mapped(const Host& host, const std::string& name) {
  const std::string node = host.files().read_link("/etc/pve/local").value_or("");
  std::istringstream lines(host.files().read("/etc/pve/mapping/pci.cfg").value_or(""));
  std::string found;
  bool here = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('\t') && !line.starts_with(' ') && !line.empty()) here = line == name;
    const std::size_t map = line.find("map ");
    if (!here || map == std::string::npos) continue;
    const std::string list = line.substr(map + 4);
    if (property(list, "node") == node.substr(node.rfind('/') + 1)) found += property(list, "path") + ";";
  }
  return found;
}

/// Adds the devices of an option "hostpciN": "01:00.0;01:00.1,pcie=1", "host=0000:01:00", "mapping=gpu".
void add_devices(const Host& host, const std::string& option, const std::string& value, ProxmoxGuest& guest) {
  const std::string first = value.substr(0, value.find(',')), mapping = property(value, "mapping");
  const std::string named = property(value, "host");
  const std::string addresses = !mapping.empty() ? mapped(host, mapping) : !named.empty() ? named : first;
  for (std::string address : split(addresses, ';')) {
    if (std::ranges::count(address, ':') == 1) address = "0000:" + address;
    guest.devices.emplace_back(option, std::move(address));
  }
}

ProxmoxGuest guest_of(const Host& host, const std::string& id, bool container) {
  ProxmoxGuest guest{.id = id, .name = {}, .container = container};
  const std::string file = fmt::format("{}/{}.conf", container ? kContainers : kMachines, id);
  guest.running =
      host.files().exists(container ? "/sys/fs/cgroup/lxc/" + id : fmt::format("/run/qemu-server/{}.pid", id));
  for_options(host.files().read(file).value_or(""), [&](const std::string& option, const std::string& value) {
    if (option == (container ? "hostname" : "name")) guest.name = printable(value);
    if (container) guest.nvidia_files |= value.find("/dev/nvidia") != std::string::npos;
    if (!container && option.starts_with("hostpci")) add_devices(host, option, value, guest);
  });
  return guest;
}

}  // namespace

std::string ProxmoxGuest::text() const {
  return fmt::format("{} {}{}", container ? "container" : "VM", id, name.empty() ? "" : fmt::format(" ({})", name));
}

std::string ProxmoxGuest::shutdown() const { return fmt::format("{} shutdown {}", container ? "pct" : "qm", id); }

std::string ProxmoxGuest::option_of(const PciDevice& device) const {
  for (const auto& [option, address] : devices)
    if (device.address == address || device.address.starts_with(address + ".")) return option;
  return {};
}

ProxmoxGuest proxmox_container(const Host& host, const std::string& id) { return guest_of(host, id, true); }

std::vector<ProxmoxGuest> proxmox_guests(const Host& host) {
  std::vector<ProxmoxGuest> guests;
  for (const bool container : {true, false}) {
    for (const std::string& file : host.names(container ? kContainers : kMachines)) {
      const std::string id = file.substr(0, file.find('.'));
      if (file == id + ".conf" && !id.empty() && id.find_first_not_of("0123456789") == std::string::npos)
        guests.push_back(guest_of(host, id, container));
    }
  }
  return guests;
}

}  // namespace p2pd
