// SPDX-License-Identifier: MIT
#pragma once

#include "base/json.hpp"
namespace p2pd::ctl {

// Measurements of a p2p-bench report (schema p2pd.bench/1), as grids [from][to] of its GPUs; null: not measured.

/// [{id, title, unit, after, before, before_by, limits}] of each measured figure. `before` is a grid of the earlier
/// report with its GPUs matched by UUID, or null. `before_by` marks values of copies through host memory. `limits`
/// is the payload limit of the path, or null if the figure has no such limit or no path is known.
nlohmann::json matrices_of(const nlohmann::json& bench, const nlohmann::json& earlier);

/// Word for a pair of two groups of peers.
inline constexpr char kNotExpected[] = "not expected";

/// Words: "ok", or the fault in the bytes of an ordered pair.
nlohmann::json bytes_of(const nlohmann::json& bench);

/// True if `report` is a p2p-bench report with measurements.
bool is_bench_report(const nlohmann::json& report);

}  // namespace p2pd::ctl
