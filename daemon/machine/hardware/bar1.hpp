// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd {

/// BAR1 of one NVIDIA GPU: without NVLink, a peer reaches its VRAM through this window and nothing else.
struct Bar1 {
  const PciDevice* gpu = nullptr;
  std::optional<GpuModel> model;          ///< nothing when its chip is not known
  PciTree::Way above;                     ///< the ports above the GPU
  std::optional<PciRange> range;          ///< in force; nothing when not readable, length 0 when none was assigned
  std::uint64_t told_bytes = 0;           ///< VRAM as the driver tells it; 0 when it does not
  std::optional<ResizableBar> resizable;  ///< nothing when absent or not readable

  /// GeForce drivers with P2P map all VRAM into BAR1, and support no card older than Ampere. To the others NVIDIA's own
  /// driver gives P2P without that.
  bool carries_p2p() const { return may_be_geforce(model) && (!model || !is_old_geforce(*model)); }
  /// The model's nominal VRAM: no less than what the driver maps and its own registers take (an RTX 4090 of 24576 MiB
  /// maps 24210). What the driver tells where that is more (a conversion), or the model sells with several sizes.
  /// Nothing when neither is known.
  std::optional<std::uint64_t> vram_bytes() const;
  bool covers_vram() const;  ///< false, too, where either is not known
  /// The size to have: the one in force where it covers the VRAM, else the smallest supported one that does. Where the
  /// supported ones cannot be read, the smallest power of two. Nothing when there is none or VRAM is not known.
  std::optional<std::uint64_t> goal_bytes() const;
};

/// Of every NVIDIA GPU among `devices`, which must outlive it. `told_bytes`: VRAM by address, see machine/hardware/vram.hpp.
/// An Error: the table of models is broken.
Result<std::vector<Bar1>> bar1_of_gpus(const Host& host, const std::vector<PciDevice>& devices,
                                       const std::map<std::string, std::uint64_t>& told_bytes = {});

/// "32768 MiB"
std::string mib(std::uint64_t bytes);

}  // namespace p2pd
