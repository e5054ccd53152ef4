// SPDX-License-Identifier: MIT
#include "probes/bench/report/machine.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "machine/boot/kernel_arguments.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "machine/hardware/rdma.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd::bench {
namespace {

struct AcsBit {
  std::uint16_t bit;
  std::string_view name;
};
constexpr std::array<AcsBit, 5> kAcsBits = {{{PCI_ACS_RR, "request redirect"},
                                             {PCI_ACS_CR, "completion redirect"},
                                             {PCI_ACS_UF, "upstream forwarding"},
                                             {PCI_ACS_EC, "egress control"},
                                             {PCI_ACS_DT, "direct translated"}}};

void put_line(nlohmann::json& facts, const char* name, const Host& host, const std::string& path) {
  const auto line = host.line(path);
  if (line) facts[name] = *line;
}

void put_driver(nlohmann::json& facts, const Host& host) {
  put_line(facts, "driver_version", host, kLoadedDriver);
  put_line(facts, "srcversion", host, "/sys/module/nvidia/srcversion");
  if (const ModuleIdentity loaded = loaded_identity(host, "nvidia"); !loaded.build_id.empty())
    facts["build_id"] = loaded.build_id;
  const auto open_modules = gpu_direct(host).open_modules;
  if (open_modules) facts["open_modules"] = *open_modules;
  const auto params = nvidia_params(host);
  if (params && params->contains("NVreg_RegistryDwords"))
    facts["registry_options"] = params->at("NVreg_RegistryDwords");
}

void put_arguments(nlohmann::json& facts, const Host& host) {
  const auto line = host.line("/proc/cmdline");
  if (!line) return;
  constexpr std::array<std::string_view, 8> kStarts = {
      "iommu=", "iommu.", "intel_iommu=", "amd_iommu=", "amd_iommu_", "pci=", "pcie_acs_override=", "vfio"};
  facts["iommu_arguments"] = nlohmann::json::array();
  for (const KernelArgument& argument : parse_kernel_line(*line)) {
    const std::string text = argument.text();
    if (std::ranges::any_of(kStarts, [&](std::string_view start) { return text.starts_with(start); }))
      facts["iommu_arguments"].push_back(text);
  }
}

nlohmann::json facts_of_gpu(const Host& host, const std::string& address, const std::vector<PciDevice>& devices) {
  nlohmann::json facts = {{"address", address}};
  int node = 0;
  const std::string line = host.line(sysfs_path(address, "numa_node")).value_or("");
  if (std::from_chars(line.data(), line.data() + line.size(), node).ec == std::errc()) facts["numa_node"] = node;
  put_line(facts, "local_cpulist", host, sysfs_path(address, "local_cpulist"));
  put_line(facts, "iommu_group_type", host, sysfs_path(address, "iommu_group/type"));
  const auto device = std::ranges::find(devices, address, &PciDevice::address);
  if (device == devices.end()) return facts;
  const auto bytes = pci_bar_bytes(host, *device, nvidia_bar1(*device));
  if (bytes) facts["bar1_bytes"] = *bytes;
  return facts;
}

void put_gpus(nlohmann::json& facts, const Host& host, const std::vector<std::string>& addresses,
              const std::vector<PciDevice>& devices) {
  facts["gpus"] = nlohmann::json::array();
  std::set<std::string> domains;
  for (const std::string& address : addresses) {
    facts["gpus"].push_back(facts_of_gpu(host, address, devices));
    const nlohmann::json& gpu = facts["gpus"].back();
    if (gpu.contains("iommu_group_type")) domains.insert(gpu["iommu_group_type"].get<std::string>());
  }
  if (!domains.empty()) facts["iommu_domain"] = fmt::format("{}", fmt::join(domains, ", "));
}

/// Adds the ACS state of ports on a path between two of the GPUs. Other ports are irrelevant: clearing them gives up
/// isolation needlessly.
void put_acs(nlohmann::json& facts, const Host& host, const std::vector<std::string>& addresses,
             const std::vector<PciDevice>& devices) {
  const auto paths = paths_between(host, addresses);
  if (!paths) return;
  std::set<std::string> passed;
  for (const std::vector<Path>& row : *paths) {
    for (const Path& path : row) passed.insert(path.shared.begin(), path.shared.end());
  }
  for (const PciDevice& port : devices) {
    const auto control = passed.contains(port.address) ? acs_control(port) : std::nullopt;
    if (!control) continue;
    nlohmann::json& names = facts["acs"][port.address] = nlohmann::json::array();
    for (const AcsBit& bit : kAcsBits) {
      if ((*control & bit.bit) != 0) names.push_back(bit.name);
    }
  }
}

void put_rdma(nlohmann::json& facts, const Host& host, const std::vector<PciDevice>& devices) {
  const GpuDirect driver = gpu_direct(host);
  if (driver.peermem_loaded) facts["peermem_loaded"] = *driver.peermem_loaded;
  facts["rdma_nics"] = nlohmann::json::array();
  for (const RdmaNic& nic : rdma_nics(host, devices)) facts["rdma_nics"].push_back(nic.address);
}

}  // namespace

nlohmann::json machine_facts(const Host& host, const std::vector<std::string>& gpu_addresses) {
  nlohmann::json facts = nlohmann::json::object();
  put_line(facts, "kernel", host, "/proc/sys/kernel/osrelease");
  put_driver(facts, host);
  put_arguments(facts, host);
  const auto devices = pci_devices(host);
  put_gpus(facts, host, gpu_addresses, devices.value_or(std::vector<PciDevice>()));
  if (!devices) return facts;
  put_acs(facts, host, gpu_addresses, *devices);
  put_rdma(facts, host, *devices);
  return facts;
}

}  // namespace p2pd::bench
