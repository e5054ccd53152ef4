// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "base/host.hpp"
#include "machine/hardware/bar1.hpp"

namespace p2pd {

/// What a driver that resizes BAR1 of one GPU meets. Linux releases the window of each bridge above the GPU that holds
/// nothing else, and places it anew: what bounds BAR1 is the first window that holds something else, or the root bus.
struct Bar1Room {
  enum class Kind {
    enough,    ///< for BAR1 at its goal, or it need not grow
    window,    ///< `fixed` holds something else, so that it stays as it is, and has no room
    aperture,  ///< nothing is in the way, but the address space of the root bus has no room
    unknown,   ///< not for this user to see, or not in the record
  };
  Kind kind = Kind::enough;
  const PciDevice* fixed = nullptr;
};

/// Of each of `gpus`, resized one after the other in this order as the driver does, each to the largest size that fits.
std::vector<Bar1Room> rooms_for_bar1(const Host& host, const std::vector<Bar1>& gpus);

}  // namespace p2pd
