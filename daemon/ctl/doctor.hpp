// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/assess.hpp"

namespace p2pd::ctl {

/// What a look at every check of `plan` says: schema p2pd.doctor/1, but for what the look took.
nlohmann::json diagnosis_of(const Assessment& seen, const Plan& plan, const Registry& registry);

/// A step of `seen` as a row of a table: its mark, its name, what was seen.
std::vector<std::string> row_of(const Standing& standing, const Assessment& seen);

/// Of doctor: 0 ready, 3 not proven but p2pd can go on, 4 a person is needed, or it is impossible.
int exit_status(Outlook outlook);

}  // namespace p2pd::ctl
