// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "machine/hardware/pci.hpp"

namespace p2pd {

/// What NVIDIA's driver tells of a GPU in /proc/driver/nvidia/gpus under `key`, "Model"; empty where it is not loaded, or silent.
std::string told_of_gpu(const Host& host, const std::string& address, std::string_view key);

/// True of a word that can name GPUs: a PCI address ("0000:65:00.0", "65:00.0"), a model ("10de:1d01") or a UUID ("GPU-...").
bool is_gpu_name(std::string_view word);

/// Why a GPU of `host` takes no part in P2P: the plan names it, or the driver was told to leave it out (NVreg_ExcludedGpus).
/// Empty: it does. A UUID is known where NVIDIA's driver is loaded.
std::string why_left_out(const Host& host, const PciDevice& gpu);

}  // namespace p2pd
