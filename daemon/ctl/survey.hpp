// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/action.hpp"
#include "base/finding.hpp"
#include "plan/plan.hpp"

namespace p2pd::ctl {

/// How one state step of a plan stands on a host that is only looked at.
struct Standing {
  enum class Kind {
    holds,
    fixable,  ///< p2pd can make it hold
    blocked,  ///< a person is needed
    waits     ///< a step it comes after does not hold: judged after that, and not even looked at behind a blocked one
  };
  const Step* step = nullptr;
  Kind kind = Kind::holds;
  Finding finding;
  Effect effect = Effect::live;  ///< of the fix
  /// What a fix would do.
  struct Change {
    const Step* step;  ///< this one, or one that it needs
    Description description;
  };
  std::vector<Change> changes;  ///< in the order in which they are made, where they could be told
  std::string obstacle;  ///< why a change cannot be described, the requirement that fails, or what is waited for
};
std::string_view to_string(Standing::Kind kind);

/// What a walk of `plan` would meet on `host`, found out without changing anything.
struct Survey {
  std::vector<Standing> steps;
  /// What the fixes or the restart end, as the requirements that were looked at say: services, sessions.
  std::vector<std::string> ends;

  bool holds() const;
  bool blocked() const;
  int reboots() const;                 ///< a walk without surprises makes so many
  /// The first gate that is shut; where nothing is known to be shut, the first that could not be found out.
  const Standing* root_cause() const;
  /// Steps that wait for `gate`, directly or behind each other.
  std::vector<const Step*> behind(const Standing& gate) const;
  /// Gates that are shut, or could not be found out, besides `gate`.
  std::vector<const Step*> beside(const Standing& gate) const;
};

/// `host` is a snapshot, so that nothing is read twice. `describe`: ask each fix what it would do, too.
Survey survey(const Plan& plan, const Vocabulary& vocabulary, const Host& host, bool describe);

/// What the operator does about a standing that is blocked.
std::string next_for_operator(const Standing& standing);

}  // namespace p2pd::ctl
