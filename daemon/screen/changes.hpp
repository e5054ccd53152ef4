// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace p2pd::ctl
