// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

/// A container or a virtual machine of Proxmox VE, as its configuration says.
struct ProxmoxGuest {
  std::string id;          ///< "105"
  std::string name;        ///< printable; empty: it has none, or only root may read it
  bool container = false;  ///< else a virtual machine
  bool running = false;
  bool nvidia_files = false;  ///< container: it is given device files of NVIDIA's driver
  /// Of a virtual machine: option and PCI address of each device that it is given, "hostpci0" and "0000:01:00.0"; an
  /// address without a function, "0000:01:00", is of all of them.
  std::vector<std::pair<std::string, std::string>> devices = {};

  std::string text() const;      ///< "container 105 (llm)", "VM 100 (win11)"
  std::string shutdown() const;  ///< "pct shutdown 105", "qm shutdown 100"
  /// Option that gives `device` to the virtual machine; empty: none does.
  std::string option_of(const PciDevice& device) const;
};

/// Container `id` of this host; only text() and shutdown() are filled.
ProxmoxGuest proxmox_container(const Host& host, const std::string& id);

/// Containers, then virtual machines of this host, by id. Reads /etc/pve/{lxc,qemu-server,mapping}; what is not
/// readable there is as if it were not there.
std::vector<ProxmoxGuest> proxmox_guests(const Host& host);

}  // namespace p2pd
