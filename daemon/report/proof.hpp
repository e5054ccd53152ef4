// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/document.hpp"

namespace p2pd::ctl {

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
