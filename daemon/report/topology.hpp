// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// Inline SVG of the tree of CPUs, switches and GPUs (key `topology` of a report), a row each, readable on a
/// narrow screen. The thickness of a line is the capacity of its link. Empty if there is nothing to draw.
std::string topology_drawing(const nlohmann::json& nodes);

/// Path classes of the pairs, as a sentence for two GPUs and a table for more, and list of their limits (key `pairs`).
/// Empty for fewer than two GPUs.
std::string pairs_table(const nlohmann::json& pairs);

}  // namespace p2pd::ctl
