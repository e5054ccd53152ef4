// SPDX-License-Identifier: MIT
#pragma once



#include "base/json.hpp"
namespace p2pd::ctl {

// What a report of p2p-bench (schema p2pd.bench/1) measured, as grids [from][to] of its GPUs; null: not measured.

/// [{id, title, unit, after, before, before_by, limits}]: those that were measured. `before` is a grid of the earlier
/// report with its GPUs matched by UUID, or null; `before_by` says where it is of copies through host memory; `limits`
/// is what the path leaves for data, or null where a figure has no such limit or no path is known.
nlohmann::json matrices_of(const nlohmann::json& bench, const nlohmann::json& earlier);

/// Words: "ok", or what went wrong with the bytes of an ordered pair.
nlohmann::json bytes_of(const nlohmann::json& bench);

/// True when `report` is one of p2p-bench that measured something.
bool is_bench_report(const nlohmann::json& report);

}  // namespace p2pd::ctl
