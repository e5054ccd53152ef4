// SPDX-License-Identifier: MIT
#include "screen/changes.hpp"

#include <algorithm>
#include <functional>

#include "base/image_runner.hpp"

namespace p2pd::ctl {

Changes ChangeTeller::tell(const Standing& standing) {
  Changes changes;
  if (standing.kind == Standing::Kind::waits) tell_later(standing, changes);
  if (standing.kind != Standing::Kind::fixable && standing.kind != Standing::Kind::busy) return changes;
  tell_needs(*standing.step, changes);
  if (!standing.step->fix.empty()) tell_fix(*standing.step, changes);
  return changes;
}

void ChangeTeller::tell_needs(const Step& step, Changes& changes) {
  for (const std::string& name : step.needs) {
    const Step& need = *plan_.step(name);
    const auto found = seen_.needs.find(name);
    if (found == seen_.needs.end() || found->second.holds() || need.fix.empty() || !told_.insert(name).second) continue;
    tell_needs(need, changes);
    tell_fix(need, changes);
  }
}

/// Describes the fix of a failing step that waits for another step, as far as possible before that one is fixed.
void ChangeTeller::tell_later(const Standing& standing, Changes& changes) const {
  const Step& step = *standing.step;
  const std::function<bool(const std::string&)> settles = [&](const std::string& name) {  // by the same check
    const Step& earlier = *plan_.step(name);
    return (earlier.check == step.check && !earlier.fix.empty()) || std::ranges::any_of(earlier.after, settles);
  };
  if (standing.finding.verdict != Verdict::fail || step.fix.empty() || std::ranges::any_of(step.after, settles)) return;
  auto told = registry_.action(step.fix)->describe(host_, step.with);
  if (told && !(told->files.empty() && told->commands.empty())) changes.made.push_back({&step, *std::move(told)});
}

void ChangeTeller::tell_fix(const Step& step, Changes& changes) const {
  Result<Description> told = registry_.action(step.fix)->describe(host_, step.with);
  if (!told && is_not_run(told.error())) {
    told.emplace();
    told->summary = "not known for an image before it boots";
  }
  if (told) {
    changes.made.push_back({&step, *std::move(told)});
  } else if (changes.obstacle.empty()) {
    changes.obstacle = told.error().message;
    changes.next = told.error().next;
  }
}

std::vector<std::string> ends(const Assessment& seen) {
  std::vector<std::string> all;
  for (const auto& [name, finding] : seen.needs)
    for (const nlohmann::json& one : finding.facts.value("ends", nlohmann::json::array())) all.push_back(one);
  return all;
}

}  // namespace p2pd::ctl
