// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "base/host.hpp"
#include "machine/hardware/bar1.hpp"

namespace p2pd {

/// Room for a driver that resizes BAR1 of one GPU. Linux releases the window of each bridge above the GPU that holds
/// nothing else, and places it again. BAR1 is limited by the first window that holds something else, or by the root
/// bus.
struct Bar1Room {
  enum class Kind {
    enough,    ///< room for BAR1 at its goal, or it need not grow
    window,    ///< `fixed` also holds something else, so that it keeps its place, and has no room
    aperture,  ///< no window is in the way, but the address space of the root bus has no room
    refused,   ///< Linux has tried, and found no space: its log says so
    unknown,   ///< resources are not visible to this user, or not in the record
  };
  Kind kind = Kind::enough;
  const PciDevice* fixed = nullptr;
};

/// Room of each of `gpus`, resized one after the other in this order as the driver does, each to the largest size that
/// fits. `refused` where the kernel has tried a size between the one in force and the goal since it booted, and found
/// no space ("BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space"). A BAR1 that the firmware left without
/// an address is not refused as long as pci=realloc is not in force.
std::vector<Bar1Room> rooms_for_bar1(const Host& host, const std::vector<Bar1>& gpus);

}  // namespace p2pd
