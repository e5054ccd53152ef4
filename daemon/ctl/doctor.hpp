// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "plan/assess.hpp"

namespace p2pd::ctl {

/// Diagnosis from every check of `plan`: schema p2pd.doctor/1, without the cost of the checks.
nlohmann::json diagnosis_of(const Assessment& seen, const Plan& plan, const Registry& registry);

}  // namespace p2pd::ctl
