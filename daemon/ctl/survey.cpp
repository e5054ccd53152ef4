// SPDX-License-Identifier: MIT
#include "ctl/survey.hpp"

#include <algorithm>
#include <set>

namespace p2pd::ctl {
namespace {

Finding check(const Step& step, const Vocabulary& vocabulary, const Host& host) {
  const Result<Finding> finding = vocabulary.probe(step.check)->check(host, step.with);
  return finding ? *finding : unknown(finding.error());
}

}  // namespace

std::string_view to_string(Standing::Kind kind) {
  static constexpr std::string_view kNames[] = {"holds", "fixable", "blocked", "waits"};
  return kNames[static_cast<std::size_t>(kind)];
}

Survey survey(const Plan& plan, const Vocabulary& vocabulary, const Host& host, bool describe) {
  Survey survey;
  std::set<std::string> open;  // does not hold
  std::set<std::string> shut;  // nor can p2pd make it hold now: what comes after it is not looked at
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::state) continue;
    Standing standing;
    standing.step = &step;
    const auto among = [&](const std::set<std::string>& steps) {
      return std::any_of(step.after.begin(), step.after.end(), [&](const auto& id) { return steps.contains(id); });
    };
    if (among(shut) || (vocabulary.probe(step.check)->proves_p2p && among(open))) {
      standing.kind = Standing::Kind::waits;
      shut.insert(step.id);
      open.insert(step.id);
      survey.steps.push_back(std::move(standing));
      continue;
    }
    standing.finding = check(step, vocabulary, host);
    if (!standing.finding.holds()) {
      const bool can = standing.finding.verdict == Verdict::fail && !step.fix.empty();
      standing.kind = can ? Standing::Kind::fixable : Standing::Kind::blocked;
      open.insert(step.id);
      if (!can) shut.insert(step.id);
    }
    if (standing.kind == Standing::Kind::fixable) {
      const Action& action = *vocabulary.action(step.fix);
      standing.effect = action.effect;
      for (const std::string& need : step.needs) {
        const Step& required = *plan.step(need);
        const Finding finding = check(required, vocabulary, host);
        if (finding.holds() || !required.fix.empty()) continue;
        standing.kind = Standing::Kind::blocked;
        standing.obstacle = need + ": " + finding.summary;
      }
      if (describe) {
        Result<Description> told = action.describe(host, step.with);
        if (told) {
          standing.description = *std::move(told);
        } else {
          standing.kind = Standing::Kind::blocked;
          standing.obstacle = told.error().message;
          if (standing.finding.next.empty()) standing.finding.next = told.error().next;
        }
      }
    }
    survey.steps.push_back(std::move(standing));
  }
  return survey;
}

bool Survey::holds() const { return first_shut() == nullptr; }

bool Survey::blocked() const {
  return std::any_of(steps.begin(), steps.end(), [](const Standing& s) { return s.kind == Standing::Kind::blocked; });
}

int Survey::reboots() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Standing& s) { return s.kind == Standing::Kind::fixable && s.effect == Effect::reboot; });
}

const Standing* Survey::first_shut() const {
  const auto found = std::find_if(steps.begin(), steps.end(), [](const Standing& s) { return !s.finding.holds(); });
  return found == steps.end() ? nullptr : &*found;
}

std::string next_for_operator(const Standing& standing) {
  if (!standing.step->operator_text.empty()) return standing.step->operator_text;
  return standing.finding.next;
}

}  // namespace p2pd::ctl
