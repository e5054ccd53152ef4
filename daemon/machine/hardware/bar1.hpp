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

/// BAR1 of one NVIDIA GPU: without NVLink, a peer reaches its VRAM only through this window.
struct Bar1 {
  const PciDevice* gpu = nullptr;
  std::optional<GpuModel> model;          ///< nullopt if its chip is not known
  PciTree::Way above;                     ///< the ports above the GPU
  std::optional<PciRange> range;          ///< range in force; nullopt if not readable, length 0 if none was assigned
  std::uint64_t told_bytes = 0;           ///< VRAM that the driver reports; 0 if it does not
  std::optional<ResizableBar> resizable;  ///< nullopt if absent or not readable

  /// GeForce drivers with P2P map all VRAM into BAR1, and support no card older than Ampere. NVIDIA's own driver
  /// supports P2P of other cards without that.
  bool carries_p2p() const { return may_be_geforce(model) && (!model || !is_old_geforce(*model)); }
  /// Nominal VRAM of the model: no less than what the driver maps and its own registers take (an RTX 4090 of 24576 MiB
  /// maps 24210). The driver's value if that is more (a conversion), or if the model sells with several sizes.
  /// nullopt if neither is known.
  std::optional<std::uint64_t> vram_bytes() const;
  bool covers_vram() const;  ///< false also if either is not known
  bool converted() const { return is_converted(model, told_bytes); }
  /// Size to have: the one in force if it covers the VRAM, else the smallest supported one that does. If the
  /// supported ones cannot be read, the smallest power of two; if the VRAM is not known, the largest. Of a converted
  /// card whose sizes are all too small, the largest: a driver with dynamic BAR1 uses that. nullopt if there is none.
  std::optional<std::uint64_t> goal_bytes() const;
  bool must_grow() const;  ///< the size in force is less than the goal, and the driver can change that
};

/// Finds BAR1 of every NVIDIA GPU among `devices`, which must outlive it. `told_bytes`: VRAM by address, see
/// machine/hardware/gpus.hpp.
std::vector<Bar1> bar1_of_gpus(const Host& host, const std::vector<PciDevice>& devices,
                               const std::map<std::string, std::uint64_t>& told_bytes = {});

inline constexpr std::string_view kBootParameters = "/sys/kernel/boot_params/data";

/// Name of the firmware's console on a GPU, "EFI VGA" or "UEFI"; empty: it carries none. Reads the boot VGA device's
/// framebuffer in /sys/class/graphics, and kBootParameters, where nvidia looks for it even after another driver has
/// taken the framebuffer over.
std::string firmware_console(const Host& host, const Bar1& gpu);

/// Next step of the operator if no size that the card supports covers its VRAM.
inline constexpr const char* kUpdateVbios = "Update the vBIOS with the tool of the card's maker.";

/// "32768 MiB"
std::string mib(std::uint64_t bytes);

}  // namespace p2pd
