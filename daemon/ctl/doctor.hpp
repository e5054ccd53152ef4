// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/assess.hpp"

namespace p2pd::ctl {

/// Diagnosis from every check of `plan`: schema p2pd.doctor/1, without the cost of the checks.
nlohmann::json diagnosis_of(const Assessment& seen, const Plan& plan, const Registry& registry);

/// Step of `seen` as a row of a table: its mark, its name, its finding.
std::vector<std::string> row_of(const Standing& standing, const Assessment& seen);

/// Exit status of doctor: 0 ready, 3 not proven but p2pd can act, 4 the operator must act, or it is impossible.
int exit_status(Outlook outlook);

}  // namespace p2pd::ctl
