// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "base/action.hpp"

namespace p2pd {

/// Every fix, one row each.
std::span<const Action> actions();

}  // namespace p2pd
