// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Whether a host is a guest of a hypervisor, as files tell.
struct VirtualMachine {
  std::optional<bool> guest;     ///< nothing when no file tells
  std::string hypervisor;        ///< "KVM"; empty on bare metal, or where only the CPU's flag tells
  std::optional<bool> cpu_flag;  ///< x86: flag `hypervisor` of /proc/cpuinfo
  std::vector<Evidence> evidence;
};

/// Where a CPU has the flag, it decides: a bare-metal server of a cloud carries the cloud's names in its DMI, too.
/// Without one, names in DMI do; without those, what no board has makes a guest: a GPU on a root bus, a device of a
/// hypervisor. That there is none proves nothing.
VirtualMachine virtual_machine(const Host& host, const std::vector<PciDevice>& devices);

/// The clique that a hypervisor put this GPU into: those of one clique may exchange data, whatever the emulated chipset.
/// A vendor-specific capability "P2P" that QEMU adds for x-nv-gpudirect-clique. Nothing: it is in none.
std::optional<int> gpudirect_clique(const PciDevice& gpu);

/// True when one of `devices` is a bridge with `device` below it.
bool has_port_above(const PciDevice& device, const std::vector<PciDevice>& devices);

}  // namespace p2pd
