// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>

#include "ctl/survey.hpp"

namespace p2pd::ctl {

/// What a look at every check of `plan` says: schema p2pd.doctor/1, but for what the look took.
nlohmann::json diagnosis_of(const Survey& survey, const Plan& plan, const Vocabulary& vocabulary);

}  // namespace p2pd::ctl
