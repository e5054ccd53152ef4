// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "base/action.hpp"
#include "plan/assess.hpp"

namespace p2pd::ctl {

/// Description of a fix.
struct Change {
  const Step* step;  ///< step that does not hold, or one of its requirements
  Description description;
};

/// Changes that apply would make for one step that does not hold.
struct Changes {
  std::vector<Change> made;  ///< in order
  std::string obstacle;      ///< reason why one of them cannot be described, and so not made; empty: none
  std::string next;
};

/// Describes the changes of a plan, each once, at the first step that needs it.
class ChangeTeller {
 public:
  ChangeTeller(const Plan& plan, const Registry& registry, const Host& host, const Assessment& seen)
      : plan_(plan), registry_(registry), host_(host), seen_(seen) {}
  Changes tell(const Standing& standing);

 private:
  void tell_needs(const Step& step, Changes& changes);
  void tell_later(const Standing& standing, Changes& changes) const;
  void tell_fix(const Step& step, Changes& changes) const;

  const Plan& plan_;
  const Registry& registry_;
  const Host& host_;
  const Assessment& seen_;
  std::set<std::string> told_;
};

/// Services and sessions that the fixes or the restart end, from the checked requirements.
std::vector<std::string> ends(const Assessment& seen);

/// State of a step with the changes that apply would make.
struct Preview {
  const Standing& standing;
  Changes changes;
  bool blocked() const { return standing.kind == Standing::Kind::blocked || !changes.obstacle.empty(); }
  const std::string& obstacle() const { return changes.obstacle.empty() ? standing.obstacle : changes.obstacle; }
  const std::string& next() const { return changes.next.empty() ? standing.next : changes.next; }
  /// True if p2pd fixes the step as soon as something else is out of the way.
  bool fixed_later() const { return blocked() && !obstacle().empty() && standing.step->is_fixable(); }
};

/// Preview of a whole plan. Refers to the objects that it was made from.
struct PlanPreview {
  const Plan& plan;
  const Registry& registry;
  const Host& host;
  const Assessment& seen;
  std::vector<Preview> steps;  ///< in the plan's order
  Outlook outlook = Outlook::ready;
  bool changes = false;          ///< apply would change something
  bool blocked = false;          ///< nothing is changed before the operator has acted
  Reboots reboots{};             ///< expected
  std::chrono::minutes time{0};  ///< estimate of the changes, without downloads and reboots

  /// True if the change takes effect with a reboot.
  bool reboots_for(const Preview& preview, const Change& change) const;
};

PlanPreview preview_of(const Plan& plan, const Registry& registry, const Host& host, const Assessment& seen);

/// What apply does where something that it hopes for does not come true.
struct Otherwise {
  std::vector<std::string> changes;  ///< summaries
  std::vector<std::string> steps;    ///< gates that p2pd then fixes
  std::string obstacle;              ///< what a person must do before, "STEP: next"; empty: nothing
};
/// Next changes if the proof fails, with the alternative `trial` undone if there is one.
Otherwise if_the_proof_fails(const PlanPreview& all, const Step* trial);
/// Changes for `step`, which waits and fails, if it still fails once the steps before it are fixed.
Otherwise if_it_still_fails(const PlanPreview& all, const Step& step);

/// "sudo p2pctl apply", with the name of a plan that is not the default one.
std::string apply_command(const Plan& plan);

/// "no reboot", "0 or 1 reboot"
std::string reboots_text(const Reboots& reboots);

/// Blocked steps that one action of the operator unblocks.
struct Obstruction {
  std::vector<const Preview*> steps;
  std::string obstacle;  ///< of the first; empty: the step itself
  std::string next;
};
/// Obstructions of a plan, in its order.
std::vector<Obstruction> obstructions(const PlanPreview& all);

/// Step of `seen` as a row of a table: its mark, its name, its finding.
std::vector<std::string> row_of(const Standing& standing, const Assessment& seen);

/// Prints "p2pctl doctor": the verdict, what the operator must do, what p2pd does, and the next command. Fits a
/// terminal of 24 lines.
void print_verdict(const PlanPreview& preview);

/// Prints "p2pctl plan". Fits a terminal of 24 lines of 80 columns as long as checks and actions keep their texts
/// short.
void print_screen(const PlanPreview& preview);

}  // namespace p2pd::ctl
