// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "machine/hardware/bar1_room.hpp"

namespace p2pd {

/// Rooms of rooms_for_bar1(), but `refused` where the kernel has tried a size between the one in force and the goal
/// since it booted, and found no space ("BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space"). A BAR1
/// that the firmware left without an address is not refused as long as pci=realloc is not in force.
std::vector<Bar1Room> tried_rooms_for_bar1(const Host& host, const std::vector<Bar1>& gpus);

}  // namespace p2pd
