// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Signs in files that a host is a guest of a hypervisor.
struct VirtualMachine {
  std::optional<bool> guest;  ///< nullopt if no file shows it
  std::string hypervisor;     ///< "KVM"; empty on bare metal, or if only the CPU's flag shows a guest
  std::vector<Evidence> evidence;
};

/// Uses the CPU's flag if there is one: a bare-metal server of a cloud has the cloud's names in its DMI, too.
/// Otherwise uses names in DMI; without those, hardware that no board has shows a guest: a GPU on a root bus, a device
/// of a hypervisor. Its absence proves nothing.
VirtualMachine virtual_machine(const Host& host, const std::vector<PciDevice>& devices);

/// Clique that a hypervisor put this GPU into: GPUs of one clique may exchange data, whatever the emulated chipset.
/// It is a vendor-specific capability "P2P" that QEMU adds for x-nv-gpudirect-clique. nullopt: none.
std::optional<int> gpudirect_clique(const PciDevice& gpu);

/// Checks that one of `devices` is a bridge with `device` below it.
bool has_port_above(const PciDevice& device, const std::vector<PciDevice>& devices);

}  // namespace p2pd
