// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "ctl/changes.hpp"
#include "engine/assess.hpp"

namespace p2pd::ctl {

/// State of a step with the changes that apply would make.
struct Preview {
  const Standing& standing;
  Changes changes;
  bool blocked() const { return standing.kind == Standing::Kind::blocked || !changes.obstacle.empty(); }
  const std::string& obstacle() const { return changes.obstacle.empty() ? standing.obstacle : changes.obstacle; }
  const std::string& next() const { return changes.next.empty() ? standing.next : changes.next; }
};

/// Preview of a whole plan. Refers to the objects that it was made from.
struct PlanPreview {
  const Plan& plan;
  const Registry& registry;
  const Host& host;
  const Assessment& seen;
  std::vector<Preview> steps;  ///< in the plan's order
  Outlook outlook = Outlook::ready;
  bool changes = false;  ///< apply would change something
  bool blocked = false;  ///< nothing is changed before the operator has acted
  Reboots reboots{};     ///< expected

  /// True if the change takes effect with a reboot.
  bool reboots_for(const Preview& preview, const Change& change) const;
};

/// Prints "p2pctl plan". Fits a terminal of 24 lines of 80 columns as long as checks and actions keep their texts
/// short.
void print_screen(const PlanPreview& preview);

}  // namespace p2pd::ctl
