// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "ctl/survey.hpp"

namespace p2pd::ctl {

/// What a look at every check of `plan` says: schema p2pd.doctor/1, but for what the look took.
nlohmann::json diagnosis_of(const Survey& survey, const Plan& plan, const Vocabulary& vocabulary);

/// A step as a row of a table: its mark, its name, what was seen.
std::vector<std::string> row_of(const Standing& standing);

}  // namespace p2pd::ctl
