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

/// How one step of a plan stands.
struct Standing {
  enum class Kind {
    holds,
    note,      ///< does not hold, and is not in the way: the goal is reached, or can be tried; of upkeep: not p2pd's to keep
    untried,   ///< the goal: nothing keeps it from being tried
    fixable,   ///< p2pd can make it hold
    busy,      ///< the same, once what uses the machine has ended: that is waited for
    pending,   ///< its fix is made, and takes effect with the next boot
    blocked,   ///< p2pd cannot make it hold
    waits      ///< for a step that it comes after
  };
  const Step* step = nullptr;
  Kind kind = Kind::holds;
  Finding finding;       ///< of what was not looked at: unknown, without a summary
  std::string obstacle;  ///< of blocked and busy: what it needs that is not there, "STEP: why"; empty: the step itself
  std::string next;      ///< of blocked: what a person does
  bool passes = false;   ///< of blocked and busy: it ends without p2pd
  bool impossible = false;  ///< of blocked: nobody can mend it with this hardware

  bool is_failing() const { return kind == Kind::fixable || kind == Kind::busy || kind == Kind::pending || kind == Kind::blocked; }
};
std::string_view to_string(Standing::Kind kind);

/// What is to be said of the whole machine.
enum class Outlook {
  ready,       ///< the goal is reached; without a goal: every gate holds
  limited,     ///< less of it is reached than the plan wants, and p2pd knows nothing more to change
  provable,    ///< the goal can be tried now, and nothing has to be changed before that
  mendable,    ///< p2pd can change what is in the way
  person,      ///< a person is needed
  impossible,  ///< not with this hardware
};
std::string_view to_string(Outlook outlook);

/// Reboots that are expected: more than `least` where what is tried without one may take one.
struct Reboots {
  int least = 0;
  int most = 0;
};
/// "1", "0 or 1"
std::string to_string(const Reboots& reboots);

/// How a plan stands on a host: the one evaluation that the walk, doctor, plan and the report share.
struct Assessment {
  std::vector<Standing> steps;           ///< in the plan's order
  std::map<std::string, Finding> needs;  ///< of the requires steps that were looked at

  Standing* goal();
  const Standing* goal() const { return const_cast<Assessment*>(this)->goal(); }
  /// A step that the goal comes after does not hold and has a fix: what was proven before is not what the plan wants.
  bool goal_waits_for_a_fix();
  /// The goal was tried, or is known to be reached: `finding`.
  void judge_goal(Finding finding);
  /// Says of the goal what the gates mean for it.
  void conclude();

  /// The goal is reached, or can be tried: no gate is in the way.
  bool nothing_to_mend() const;
  bool gates_hold() const;
  /// Why the goal must not be tried now; empty: nothing that was seen makes that dangerous.
  std::string danger() const;
  Outlook outlook() const;
  /// What explains best that the goal is not reached: what nobody can mend, then what p2pd cannot, first of that what makes a proof
  /// dangerous, then the first gate that is shut. Null where nothing is in the way.
  const Standing* root_cause() const;
  /// Everything that a person has to see to, in the plan's order: firmware first.
  std::vector<const Standing*> for_a_person() const;
  /// Reboots of a walk without surprises.
  Reboots reboots(const Registry& registry) const;
};

using Check = std::function<Finding(const Step&)>;

/// Looks at every gate and upkeep of `plan`, not at its goal, which may be dangerous to try: judge_goal() is told of it.
/// Changes nothing. `pending`: steps whose fix takes effect with the next boot. What comes after a blocked gate is not looked
/// at, but for what the goal asks first, and for what may be a reason not to try it.
Assessment assess(const Plan& plan, const Registry& registry, const Check& check, const std::set<std::string>& pending = {});

/// The same of a host that is only looked at.
Assessment assess(const Plan& plan, const Registry& registry, const Host& host);

}  // namespace p2pd
