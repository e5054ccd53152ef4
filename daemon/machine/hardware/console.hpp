// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "machine/hardware/bar1.hpp"

namespace p2pd {

inline constexpr std::string_view kBootParameters = "/sys/kernel/boot_params/data";

/// Name of the firmware's console on a GPU, "EFI VGA" or "UEFI"; empty: it carries none. Reads the boot VGA device's
/// framebuffer in /sys/class/graphics, and kBootParameters, where nvidia looks for it even after another driver has
/// taken the framebuffer over.
std::string firmware_console(const Host& host, const Bar1& gpu);

}  // namespace p2pd
