// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/assess.hpp"

namespace p2pd::ctl {

/// Diagnosis from every check of `plan`: schema p2pd.doctor/1, without the cost of the checks.
nlohmann::json diagnosis_of(const Assessment& seen, const Plan& plan, const Registry& registry);

/// Exit status of doctor: 0 ready, 2 apply would act, 4 the operator must act, or it is impossible, 5 limited.
int exit_status(Outlook outlook);

}  // namespace p2pd::ctl
