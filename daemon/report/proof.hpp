// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/document.hpp"

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

/// Key `proof` of a report: the newest full measurement of the GPUs of the newest one, else the newest; null if there
/// is none.
nlohmann::json proof_of(const Sources& sources);

/// Gain from P2P, as lines of text: each pair before and now, NCCL, and computed all-reduces of tensor parallelism.
/// Empty if `proof` has nothing to compare.
std::vector<std::string> gain_of(const nlohmann::json& proof);

/// Key `soak`, from a p2pd.bench/1 report: {"minutes", "ended", "checked_bytes", "wrong", "points": [[seconds, slowest
/// copy in GB/s, hottest GPU in C or null], ...]}; null if that is no report of a soak.
nlohmann::json soak_of(const nlohmann::json& bench);

/// Key `pairs`: the paths of the machine, with the limits of the proof if it is of the same GPUs.
nlohmann::json pairs_with(const nlohmann::json& machine, const nlohmann::json& proof);

/// Key `before`: state of the measurement before the first change, and the reason if there is none.
nlohmann::json before_of(const nlohmann::json& baseline);

/// Key `numbers`: the main figures, as texts.
nlohmann::json numbers_of(const Sources& sources, const nlohmann::json& proof);

}  // namespace p2pd::ctl
