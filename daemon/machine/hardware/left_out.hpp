// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "machine/hardware/pci.hpp"

namespace p2pd {

/// Value of `key`, "Model", that NVIDIA's driver has for a GPU in /proc/driver/nvidia/gpus; empty if it is not loaded,
/// or has none.
std::string told_of_gpu(const Host& host, const std::string& address, std::string_view key);

/// Checks for a word that can name GPUs: a PCI address ("0000:65:00.0", "65:00.0"), a model ("10de:1d01") or a UUID
/// ("GPU-...").
bool is_gpu_name(std::string_view word);

/// Start of PciDevice::left_out of a GPU that can have no peer.
inline constexpr std::string_view kAlone = "alone: ";
inline bool is_alone(const PciDevice& gpu) { return gpu.left_out.starts_with(kAlone); }

/// Reason why a GPU of `host` takes no part in P2P: the plan names it, an option of the driver excludes it
/// (NVreg_ExcludedGpus), or it can have no peer. Empty: it takes part. A UUID is known if NVIDIA's driver is loaded.
std::string why_left_out(const Host& host, const PciDevice& gpu);

}  // namespace p2pd
