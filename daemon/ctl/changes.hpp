// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/action.hpp"
#include "engine/assess.hpp"

namespace p2pd::ctl {

/// What a fix would do.
struct Change {
  const Step* step;  ///< the one that does not hold, or one that it needs
  Description description;
};

/// What apply would change about one step that does not hold.
struct Changes {
  std::vector<Change> made;  ///< in order
  std::string obstacle;      ///< why one of them cannot be told, so cannot be made; empty: all can
  std::string next;
};

/// Tells the changes of a plan, each once: at the step that is met first.
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

/// What the fixes or the restart end, as the requirements that were looked at say: services, sessions.
std::vector<std::string> ends(const Assessment& seen);

}  // namespace p2pd::ctl
