// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// State of one step of a plan.
struct Standing {
  enum class Kind {
    holds,
    note,     ///< does not hold, and need not: an upkeep step with a `where` step that does not hold, a spared gate
    untried,  ///< goal that can be tried
    fixable,  ///< p2pd can make it hold
    busy,     ///< fixable once the processes that use the machine have ended; p2pd waits for them
    pending,  ///< its fix is applied, and takes effect with the next boot
    blocked,  ///< p2pd cannot make it hold
    waits     ///< waits for a step in its `after`
  };
  const Step* step = nullptr;
  Kind kind = Kind::holds;
  Finding finding;       ///< unknown, without a summary, if the step was not checked
  std::string obstacle;  ///< for blocked and busy: the requirement that is missing, "STEP: why"; empty: the step itself
  std::string next;      ///< for blocked: next action of the operator
  bool transient = false;   ///< for blocked and busy: transient, ends without p2pd
  bool impossible = false;  ///< for blocked: cannot be fixed with this hardware
  bool spared = false;      ///< an alternative that is in place does without this gate

  bool is_failing() const {
    return kind == Kind::fixable || kind == Kind::busy || kind == Kind::pending || kind == Kind::blocked;
  }
};
std::string_view to_string(Standing::Kind kind);

/// Overall state of the machine.
enum class Outlook {
  ready,       ///< goal reached; without a goal: every gate holds
  limited,     ///< goal reached in part; p2pd has no further change to make
  provable,    ///< goal can be tried now, without a change before it
  fixable,     ///< p2pd can fix the failing gates
  person,      ///< the operator must act
  impossible,  ///< impossible with this hardware
};
std::string_view to_string(Outlook outlook);

/// Number of reboots to expect. `most` is above `least` if a fix that is tried without a reboot may need one.
struct Reboots {
  int least = 0;
  int most = 0;
};
/// "1", "0 or 1"
std::string to_string(const Reboots& reboots);

/// State of a plan on a host. The walk, doctor, plan and the report share this one evaluation.
struct Assessment {
  std::vector<Standing> steps;           ///< in the plan's order
  std::map<std::string, Finding> needs;  ///< findings of the requires steps that were checked

  Standing* goal();
  const Standing* goal() const { return const_cast<Assessment*>(this)->goal(); }
  /// True if a step in the goal's `after` does not hold and has a fix. An earlier proof is then not what the plan
  /// wants.
  bool goal_waits_for_a_fix();
  /// Sets the finding of a goal that was tried, or that is known to be reached.
  void judge_goal(Finding finding);
  /// Derives the state of the goal from the gates.
  void conclude();

  /// True if every step in the goal's `after` holds or is spared, and the last passes: the driver's report, which
  /// nothing replaces. Of those before it one may not apply.
  bool may_be_tried() const;
  /// Gates that fail while the goal can be tried: the driver's report excuses them until the proof.
  std::vector<const Standing*> excused() const;

  /// True if the goal is reached or can be tried.
  bool nothing_to_mend() const;
  bool gates_hold() const;
  /// Reason not to try the goal now; empty: no check found a danger.
  std::string danger() const;
  Outlook outlook() const;
  /// Best explanation for a goal that is not reached. Order: impossible with this hardware, blocked with a danger to a
  /// proof, blocked with a failed check, blocked with an unknown result, first failing gate. Null if the goal is
  /// reached or can be tried.
  const Standing* root_cause() const;
  /// Blocked steps that the operator must act on, in the plan's order: firmware first.
  std::vector<const Standing*> for_a_person() const;
  /// Number of reboots of a walk in which every fix works.
  Reboots reboots(const Registry& registry) const;
};

using Check = std::function<Finding(const Step&)>;

/// Finding of the check of `step` on `host`; an Error becomes an unknown result.
Finding finding_of(const Step& step, const Registry& registry, const Host& host);

/// Gates that P2P does not need with an alternative.
struct SparedGates {
  std::set<std::string> all;               ///< also of alternatives that may still apply
  std::set<std::string> now;               ///< of alternatives that are in place
  std::map<std::string, Finding> sparing;  ///< findings of the alternatives
};
SparedGates spared_gates(const Plan& plan, const Check& check);

/// Checks every gate and upkeep step of `plan`. Does not try the goal, which may be dangerous: see judge_goal().
/// Changes nothing. `pending`: steps whose fix takes effect with the next boot. A step after a blocked gate is not
/// checked, except for the steps in the goal's `after` and the checks that may report a danger.
Assessment assess(const Plan& plan, const Registry& registry, const Check& check,
                  const std::set<std::string>& pending = {});

/// Assesses a host outside of a walk; a valid proof of this boot judges the goal.
Assessment assess(const Plan& plan, const Registry& registry, const Host& host);

}  // namespace p2pd
