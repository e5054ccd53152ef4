// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/host/pci_function.hpp"

namespace p2pd::sim {

/// A board by its PCI device id.
struct Board {
  unsigned long id;
  unsigned major, minor;  ///< SM version
  int multiprocessors;
  std::uint64_t vram_mib;
  bool geforce;  ///< P2P only if the module forces it, through BAR1
};

/// A GPU that the nvidia module drives.
struct HostGpu {
  PciFunction function;
  const Board* board;
  std::string name;
  std::string uuid;  ///< "GPU-..."
};

/// Settings of a test scenario beyond the state of the host: etc/driver-world/quirks.json.
struct Quirks {
  nlohmann::json faults = nlohmann::json::array();  ///< rows as in a machine file
  bool iommu_absent = false;                        ///< identity is not enough: no IOMMU at all
  bool patched_only = false;                        ///< no registry key gives P2P: patched modules alone do
  int crashes = 0;                                  ///< the host crashes the first times that peers are opened
  int patience = 10;  ///< times the limit of a wait in a handshake: emulated processors are slow
};

/// The host of the driver as sysfs and procfs show it, read once.
struct GpuHost {
  std::filesystem::path root;
  std::string library;                ///< version, of the file name of the library that this is part of
  std::optional<std::string> module;  ///< version of the loaded one; nothing: none is
  bool controls = false;              ///< the module's control device can be opened
  unsigned p2p_override = 0;          ///< built into the loaded module: 1:0 read, 5:4 write
  bool unified_memory = false;        ///< nvidia-uvm is loaded
  std::string registry;               ///< keys in force, "A=1;B=2"
  std::string device_registry;        ///< keys of single GPUs, "pci=0000:01:00.0;A=1;pci=..."
  std::vector<HostGpu> gpus;          ///< in the order of their addresses
  Quirks quirks;

  /// Of "/", or the root that P2PD_SIM_ROOT names. On "/", lets nvidia-modprobe load missing modules, with
  /// `unified_memory` nvidia-uvm too, as the real libraries do. Throws std::exception for a file that it cannot parse.
  static GpuHost read(bool unified_memory);
};

}  // namespace p2pd::sim
