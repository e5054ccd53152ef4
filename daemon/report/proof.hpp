// SPDX-License-Identifier: MIT
#pragma once


#include "base/json.hpp"
#include "report/document.hpp"

namespace p2pd::ctl {

/// Key `proof` of a report: the newest measurement of the benchmark, the fullest of the same GPUs; null where there is
/// none.
nlohmann::json proof_of(const Sources& sources);

/// Key `pairs`: the ways of the machine, with the limits that the proof went by where it was of the same GPUs.
nlohmann::json pairs_with(const nlohmann::json& machine, const nlohmann::json& proof);

/// Key `before`: whether the first state of the machine was measured, and why not.
nlohmann::json before_of(const nlohmann::json& baseline);

/// Key `numbers`: the few figures that a person asks for, as texts.
nlohmann::json numbers_of(const Sources& sources, const nlohmann::json& proof);

}  // namespace p2pd::ctl
