// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "base/host.hpp"
#include "machine/driver/driver_fit.hpp"

namespace p2pd {

inline constexpr std::string_view kLoadedDriver = "/sys/module/nvidia/version";

/// Collects the solver's facts about `host`: its GPUs, every bootable kernel with the compat rules of `all` that apply
/// to it, its compilers, its distribution and the running driver. Reads configuration space, sysfs, /boot,
/// /proc/version, os-release and kernel headers; asks nvidia-smi for the VRAM of GeForce cards, because converted cards
/// have more than their PCI id implies. Facts that are not readable stay open in the result.
Result<Machine> machine_of(const Host& host, const Catalogue& all);

}  // namespace p2pd
