// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// An inline SVG of the tree of CPUs, switches and GPUs (key `topology` of a report), a row each, so that it can be
/// read on a narrow screen; the thickness of a line is what its link can carry. Empty where there is nothing to draw.
std::string topology_drawing(const nlohmann::json& nodes);

/// A table of the classes of the pairs' ways, and a list of their limits (key `pairs`). Empty for fewer than two GPUs.
std::string pairs_table(const nlohmann::json& pairs);

}  // namespace p2pd::ctl
