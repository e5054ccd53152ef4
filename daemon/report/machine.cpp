// SPDX-License-Identifier: MIT
// Machine of a report: its software and firmware, its GPUs, and the paths between them as a tree.
#include "report/document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/units.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "machine/hardware/virtual_machine.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
using Paths = std::vector<std::vector<Path>>;

std::string line_of(const Host& host, const std::string& path) { return host.line(path).value_or(""); }
std::string of_device(const Host& host, const std::string& address, const char* name) {
  return line_of(host, sysfs_path(address, name));
}

/// Value of the first line of a file that starts with `key`, without the quotes around it.
std::string value_of(const Host& host, const char* path, std::string_view key, char between) {
  std::istringstream lines(host.files().read(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(between);
    if (!line.starts_with(key) || at == std::string::npos) continue;
    const std::size_t first = line.find_first_not_of(" \t\"", at + 1);
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t\"") + 1 - first);
  }
  return {};
}

std::string driver_text(const Host& host) {
  const auto driver = nvidia_version(host);
  if (!driver) return "none is loaded";
  return fmt::format("{}, {} kernel modules", driver->version, driver->open ? "open" : "proprietary");
}

std::string options_text(const Host& host) {
  const auto params = nvidia_params(host);
  const auto found =
      params ? params->find("NVreg_RegistryDwords") : std::map<std::string, std::string>::const_iterator{};
  if (!params || found == params->end()) return {};
  return found->second.empty() ? "none" : found->second;
}

std::string domains_text(const Host& host, const std::vector<std::string>& gpus) {
  std::set<std::string> types;
  for (const std::string& gpu : gpus)
    if (const std::string type = of_device(host, gpu, "iommu_group/type"); !type.empty()) types.insert(type);
  return types.empty() ? "none: no IOMMU is in force" : fmt::format("{}", fmt::join(types, ", "));
}

std::string machine_text(const Host& host, const std::vector<PciDevice>& devices) {
  const VirtualMachine guest = virtual_machine(host, devices);
  std::string text;
  for (const char* name : {"sys_vendor", "product_name", "board_vendor", "board_name"}) {
    const std::string word = line_of(host, fmt::format("/sys/class/dmi/id/{}", name));
    if (!word.empty() && text.find(word) == std::string::npos) text += (text.empty() ? "" : " ") + word;
  }
  if (!guest.guest.value_or(false)) return text;
  return fmt::format("{}{}a virtual machine{}{}", text, text.empty() ? "" : "; ",
                     guest.hypervisor.empty() ? "" : " of ", guest.hypervisor);
}

/// Sentence about hardware that does not exist; empty: all of it is real as far as is known. A rehearsal hides that it
/// is a guest, but not its maker's name.
std::string emulated_text(const Host& host, const std::vector<PciDevice>& devices) {
  const std::string cpu = value_of(host, "/proc/cpuinfo", "model name", ':');
  const VirtualMachine guest = virtual_machine(host, devices);
  if (cpu.starts_with("QEMU TCG") || line_of(host, "/sys/class/dmi/id/sys_vendor") == "p2pd")
    return "This machine is emulated" + (cpu.empty() ? "" : " (CPU " + cpu + ")") +
           ": its figures say nothing about real hardware.";
  if (!guest.guest.value_or(false)) return {};
  return fmt::format("This is a virtual machine{}{}: the PCIe topology that it shows is not that of the hardware.",
                     guest.hypervisor.empty() ? "" : " of ", guest.hypervisor);
}

/// "1022:1480 (Starship/Matisse Root Complex)": those between the GPUs.
std::string host_bridges_text(const std::vector<PciDevice>& devices, const Paths& paths) {
  std::set<std::string> bridges;
  for (const auto& row : paths)
    for (const Path& path : row)
      for (const HostBridge& bridge : host_bridges_on(devices, path)) bridges.insert(bridge.text());
  return fmt::format("{}", fmt::join(bridges, ", "));
}

/// Rows of a table, in the order in which a person needs them.
json environment_of(const Host& host, const std::vector<PciDevice>& devices, const std::vector<std::string>& gpus,
                    const Paths& paths) {
  const std::string bios =
      fmt::format("{} {} {}", line_of(host, "/sys/class/dmi/id/bios_vendor"),
                  line_of(host, "/sys/class/dmi/id/bios_version"), line_of(host, "/sys/class/dmi/id/bios_date"));
  const Identity identity = identity_of(host);
  const ModuleIdentity loaded = loaded_identity(host, "nvidia");
  const std::pair<const char*, std::string> rows[] = {
      {"Host name", identity.host_name},
      {"Machine id", identity.machine_id},
      {"System", value_of(host, "/etc/os-release", "PRETTY_NAME=", '=')},
      {"Kernel", line_of(host, "/proc/sys/kernel/osrelease")},
      {"Kernel arguments", line_of(host, "/proc/cmdline")},
      {"NVIDIA driver", driver_text(host)},
      {"srcversion", loaded.srcversion},
      {"build id", loaded.build_id},
      {"RegistryDwords", options_text(host)},
      {"IOMMU domains of the GPUs", domains_text(host, gpus)},
      {"Board", machine_text(host, devices)},
      {"Firmware", bios},
      {"CPU", value_of(host, "/proc/cpuinfo", "model name", ':')},
      {"Host bridges", host_bridges_text(devices, paths)},
  };
  json out = json::array();
  for (const auto& [name, value] : rows)
    if (value.find_first_not_of(' ') != std::string::npos) out.push_back({{"name", name}, {"value", value}});
  return out;
}

json gpus_of(const Host& host, const std::vector<PciDevice>& devices, const std::vector<std::string>& addresses) {
  const auto told = told_vram_bytes(host);
  json gpus = json::array();
  for (const std::string& address : addresses) {
    const PciDevice& device = *std::ranges::find(devices, address, &PciDevice::address);
    const auto model = model_of(device.id());
    json gpu = {
        {"address", address},
        {"name", model ? model->name : "unknown model " + device.id()},
        {"driver", pci_driver(host, address)},
        {"numa_node", of_device(host, address, "numa_node")},
        {"iommu", of_device(host, address, "iommu_group/type")},
        {"uuid", value_of(host, ("/proc/driver/nvidia/gpus/" + address + "/information").c_str(), "GPU UUID", ':')}};
    if (model && model->vram_mib) gpu["vram_mib"] = *model->vram_mib;
    if (const auto vram = told.find(address); vram != told.end()) gpu["vram_mib"] = vram->second / kMiB;
    const auto bar1 = pci_bar_bytes(host, device, nvidia_bar1(device));
    if (bar1 && *bar1 > 0) gpu["bar1_mib"] = *bar1 / kMiB;
    if (device.is_lost()) gpu["name"] = gpu["name"].get<std::string>() + ", fell off the bus";
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

// ---- tree of CPUs, switches and GPUs; a line below a root port or downstream port names that port -------------------

/// True for the upstream port of a switch, which represents the whole switch; the link of another port is below it.
bool is_upstream_port(const PciDevice& port) {
  constexpr std::uint8_t kExpressId = 0x10;
  constexpr int kUpstream = 5;
  const auto at = port.capability(kExpressId);
  return at && (port.word(*at + 2) >> 4 & 0xf) == kUpstream;
}

json link_json(const std::map<std::string, Link>& links, const std::string& address) {
  const auto found = links.find(address);
  if (found == links.end() || found->second.width == 0) return nullptr;
  const Link& link = found->second;
  return {{"generation", link.generation},
          {"width", link.width},
          {"generation_most", link.generation_most},
          {"width_most", link.width_most}};
}

/// Tree that is built node by node; an existing node is not changed.
class Tree {
 public:
  Tree(const Host& host, const std::vector<PciDevice>& devices, const std::vector<std::string>& gpus,
       const Paths& paths)
      : host_(host), bridges_(devices) {
    for (const AcsPort& port : acs_ports(host, devices, gpus)) acs_[port.address] = port;
    for (const auto& row : paths)
      for (const Path& path : row)
        for (const Link& link : path.links) links_.emplace(link.address, link);
  }

  void add(const PciDevice& gpu, const std::string& name) {
    const PciTree::Way way = bridges_.above(gpu);
    std::string above = root_above(gpu, way.whole);
    for (auto port = way.ports.rbegin(); port != way.ports.rend(); ++port) {
      if (!is_upstream_port(**port)) continue;
      const bool top = port == way.ports.rbegin();
      put((*port)->address, above, "switch", "Switch", top ? nullptr : *(port - 1));
      above = (*port)->address;
    }
    put(gpu.address, above, "gpu", name, way.ports.empty() ? nullptr : way.ports.front());
  }

  json nodes() && { return std::move(nodes_); }

 private:
  std::string root_above(const PciDevice& gpu, bool whole) {
    const std::string node = of_device(host_, gpu.address, "numa_node");
    const bool told = !node.empty() && node != "-1";
    std::string id = (whole ? "cpu" : "hidden") + (told ? " " + node : "");
    put(id, "", whole ? "cpu" : "hidden", whole ? "CPU" : "Bridges that are not visible here", nullptr);
    nodes_[places_[id]]["detail"] = told ? "NUMA node " + node : "";
    return id;
  }

  void put(const std::string& id, const std::string& above, const char* kind, const std::string& title,
           const PciDevice* port) {
    if (!places_.emplace(id, nodes_.size()).second) return;
    const auto acs = port == nullptr ? acs_.end() : acs_.find(port->address);
    nodes_.push_back({{"id", id},
                      {"above", above},
                      {"kind", kind},
                      {"title", title},
                      {"detail", above.empty() ? "" : id},
                      {"port", port == nullptr ? "" : port->address},
                      {"redirects", acs != acs_.end() && acs->second.redirects()},
                      {"link", link_json(links_, id)}});
  }

  const Host& host_;
  PciTree bridges_;
  std::map<std::string, AcsPort> acs_;
  std::map<std::string, Link> links_;
  json nodes_ = json::array();
  std::map<std::string, std::size_t> places_;
};

json pairs_of(const Paths& paths) {
  json grid = json::array();
  for (std::size_t from = 0; from < paths.size(); ++from) {
    grid.push_back(json::array());
    for (std::size_t to = 0; to < paths.size(); ++to) {
      const Path& path = paths[from][to];
      grid.back().push_back(from == to ? json()
                                       : json{{"kind", to_string(path.kind)},
                                              {"topology", path.topology},
                                              {"limit_gb_s", path.payload_gb_s},
                                              {"arithmetic", path.arithmetic}});
    }
  }
  return grid;
}

}  // namespace

json machine_facts(const Host& host) {
  const auto devices = pci_devices(host).value_or(std::vector<PciDevice>());
  const std::vector<std::string> addresses = nvidia_gpus(devices);
  const Paths paths = paths_between(host, devices, addresses);
  json gpus = gpus_of(host, devices, addresses);
  Tree tree(host, devices, addresses, paths);
  for (std::size_t i = 0; i < addresses.size(); ++i)
    tree.add(*std::ranges::find(devices, addresses[i], &PciDevice::address), fmt::format("GPU {}", i));
  return {{"emulated", emulated_text(host, devices)},
          {"environment", environment_of(host, devices, addresses, paths)},
          {"gpus", std::move(gpus)},
          {"topology", std::move(tree).nodes()},
          {"pairs", pairs_of(paths)}};
}

}  // namespace p2pd::ctl
