// SPDX-License-Identifier: MIT
#include "machine/hardware/virtual_machine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {
namespace {

/// Makers of devices that only hypervisors have: VMware, QEMU, Xen, VirtualBox. Virtio's is not one: DPUs use it, too.
constexpr std::uint16_t kVirtualOnly[] = {0x15ad, 0x1b36, 0x5853, 0x80ee};
constexpr std::size_t kCpuInfoLimit = 16U << 20;  // bytes; a CPU takes 2 KiB

/// Prefixes of makers' names in DMI, as in systemd's src/basic/virt.c.
struct Maker {
  std::string_view begins;
  std::string_view hypervisor;
};
constexpr Maker kMakers[] = {
    {"KVM", "KVM"},
    {"OpenStack", "KVM"},
    {"KubeVirt", "KVM"},
    {"Amazon EC2", "Amazon"},
    {"QEMU", "QEMU"},
    {"VMware", "VMware"},
    {"VMW", "VMware"},
    {"innotek GmbH", "VirtualBox"},
    {"VirtualBox", "VirtualBox"},
    {"Xen", "Xen"},
    {"Bochs", "Bochs"},
    {"Parallels", "Parallels"},
    {"BHYVE", "bhyve"},
    {"Hyper-V", "Hyper-V"},
    {"Apple Virtualization", "Apple"},
    {"Google Compute Engine", "Google"},
    {"Alibaba Cloud ECS", "KVM"},
};
constexpr std::string_view kDmiNames[] = {"product_name", "sys_vendor", "board_vendor", "bios_vendor"};

/// Flag `hypervisor` of the first CPU; nullopt if there is no line of flags, as on ARM.
std::optional<bool> hypervisor_flag(const Host& host) {
  const std::string text = host.files().read("/proc/cpuinfo", kCpuInfoLimit).value_or("");
  const std::size_t begin = text.starts_with("flags") ? 0 : text.find("\nflags");
  if (begin == std::string::npos) return std::nullopt;
  const std::size_t end = std::min(text.find('\n', begin + 1), text.size());
  return (text.substr(begin, end - begin) + " ").find(" hypervisor ") != std::string::npos;
}

/// Hypervisor that DMI names; empty: it names hardware. nullopt if DMI cannot be read.
std::optional<std::string> hypervisor_of_dmi(const Host& host, std::vector<Evidence>& evidence) {
  std::optional<std::string> found;
  for (const std::string_view name : kDmiNames) {
    const std::string path = fmt::format("/sys/class/dmi/id/{}", name);
    const auto line = host.line(path);
    if (!line) continue;
    evidence.push_back({path, *line});
    if (!found) found = "";
    const auto maker =
        std::ranges::find_if(kMakers, [&](const Maker& entry) { return line->starts_with(entry.begins); });
    // Microsoft's name for the product; its vendor makes hardware, too
    if (found->empty() && *line == "Virtual Machine") found = "Hyper-V";
    if (found->empty() && maker != std::end(kMakers)) found = std::string(maker->hypervisor);
  }
  return found;
}

}  // namespace

bool has_port_above(const PciDevice& device, const std::vector<PciDevice>& devices) {
  return std::ranges::any_of(devices, [&](const PciDevice& port) {
    return port.is_bridge() && !port.is_lost() && PciTree::is_below(port, device);
  });
}

VirtualMachine virtual_machine(const Host& host, const std::vector<PciDevice>& devices) {
  VirtualMachine machine;
  const std::optional<bool> cpu_flag = hypervisor_flag(host);
  if (cpu_flag) machine.evidence.push_back({"/proc/cpuinfo", *cpu_flag ? "flag hypervisor" : "no flag hypervisor"});
  const auto named = hypervisor_of_dmi(host, machine.evidence);
  if (cpu_flag)
    machine.guest = cpu_flag;
  else if (named)
    machine.guest = !named->empty();
  if (machine.guest == true && named) machine.hypervisor = *named;
  if (machine.guest) return machine;
  // a port above a GPU proves nothing: emulated machines have those, too
  for (const PciDevice& device : devices) {
    const bool made_up = std::ranges::find(kVirtualOnly, device.vendor_id) != std::end(kVirtualOnly);
    const bool gpu = device.takes_part() && device.config.size() >= 64;
    if (!made_up && !(gpu && !has_port_above(device, devices))) continue;
    machine.guest = true;
    machine.evidence.push_back(
        {pci_source(host), fmt::format("{} {}", device.address, made_up ? "is of a hypervisor" : "is on a root bus")});
    break;
  }
  return machine;
}

std::optional<int> gpudirect_clique(const PciDevice& gpu) {
  constexpr std::uint8_t kVendorSpecific = 0x09;
  constexpr int kMost = 48;  // no list is longer
  auto at = gpu.capability(kVendorSpecific);
  for (int i = 0; at && i < kMost; ++i, at = gpu.capability(kVendorSpecific, *at)) {
    const bool named = gpu.dword(*at) >> 16 == 0x5008 && (gpu.dword(*at + 4) & 0xffffU) == 0x5032;  // 8 bytes, "P2P"
    if (named) return static_cast<int>(gpu.dword(*at + 4) >> 19 & 0xfU);
  }
  return std::nullopt;
}

}  // namespace p2pd
