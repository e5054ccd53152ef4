// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

// Sections of a page, from a document of schema p2pd.report/1.

std::string changes_section(const nlohmann::json& document);
std::string checks_section(const nlohmann::json& document);
std::string timeline_section(const nlohmann::json& document);
std::string environment_section(const nlohmann::json& document);

/// Section of the measurement of a document of schema p2pd.report/1, before and after: sentences for two GPUs, maps for
/// more. Rows of a map send, columns receive; all maps share one scale of seven steps of one colour. Each cell has its
/// number, its share of the limit, and a mark if it was judged bad, so that no information depends on colour alone.
/// Empty: nothing was measured.
std::string measured_section(const nlohmann::json& document);

/// Key `soak` of a report, from a p2pd.bench/1 report: {"minutes", "ended", "checked_bytes", "wrong", "points":
/// [[seconds, slowest copy in GB/s, hottest GPU in C or null], ...]}; null if that is no report of a soak.
nlohmann::json soak_of(const nlohmann::json& bench);
/// Section of that: a sentence, and a graph of rate and temperature over time. Empty without a soak.
std::string soak_section(const nlohmann::json& document);

/// Inline SVG of the tree of CPUs, switches and GPUs (key `topology` of a report), a row each, readable on a
/// narrow screen. The thickness of a line is the capacity of its link. Empty if there is nothing to draw.
std::string topology_drawing(const nlohmann::json& nodes);

/// Path classes of the pairs, as a sentence for two GPUs and a table for more, and list of their limits (key `pairs`).
/// Empty for fewer than two GPUs.
std::string pairs_table(const nlohmann::json& pairs);

}  // namespace p2pd::ctl
