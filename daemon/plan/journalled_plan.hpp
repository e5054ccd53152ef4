// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/plan.hpp"

namespace p2pd {

/// Plan of a run, as the journal returns it.
struct JournalledPlan {
  /// Whole, or if `unread`: the steps that this p2pd can read, without their order. These suffice for rollbacks and
  /// checks.
  Plan plan;
  std::optional<Error> unread;  ///< reason why the run cannot be continued
};

/// Text of a resolved plan for the journal: JSON, with the version of its format.
std::string journal_text(const Plan& plan);

/// Reads a text of journal_text(); converts the formats of earlier versions of p2pd. An empty text is a plan without
/// steps. `name`: plan of the run.
JournalledPlan read_journalled_plan(const std::string& text, const std::string& name, const Registry& registry);

}  // namespace p2pd
