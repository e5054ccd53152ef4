// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "base/probe.hpp"

namespace p2pd {

/// Every check, one row each.
std::span<const Probe> probes();

}  // namespace p2pd
