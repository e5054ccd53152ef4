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

Standing::Kind kind_of(const Step& step, const Finding& finding) {
  return finding.verdict == Verdict::fail && !step.fix.empty() ? Standing::Kind::fixable : Standing::Kind::blocked;
}

bool is_shut(const Standing& s) { return s.kind == Standing::Kind::fixable || s.kind == Standing::Kind::blocked; }

/// What the fix would do, and whether it could.
void look_at_fix(Standing& standing, const Plan& plan, const Vocabulary& vocabulary, const Host& host, bool describe) {
  const Step& step = *standing.step;
  const Action& action = *vocabulary.action(step.fix);
  standing.effect = action.effect;
  for (const std::string& need : step.needs) {
    const Step& required = *plan.step(need);
    const Finding finding = check(required, vocabulary, host);
    if (finding.holds() || !required.fix.empty()) continue;
    standing.kind = Standing::Kind::blocked;
    standing.obstacle = need + ": " + finding.summary;
    standing.finding.next = finding.next;
  }
  if (!describe) return;
  Result<Description> told = action.describe(host, step.with);
  if (told) {
    standing.description = *std::move(told);
    return;
  }
  standing.kind = Standing::Kind::blocked;
  standing.obstacle = told.error().message;
  if (standing.finding.next.empty()) standing.finding.next = told.error().next;
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
    if (among(shut) || (vocabulary.probe(step.check)->proves_p2p && !open.empty())) {
      standing.kind = Standing::Kind::waits;
      shut.insert(step.id);
    } else {
      standing.finding = check(step, vocabulary, host);
      standing.kind = among(open) ? Standing::Kind::waits : kind_of(step, standing.finding);
      if (standing.finding.holds()) standing.kind = Standing::Kind::holds;
    }
    if (standing.kind == Standing::Kind::fixable) look_at_fix(standing, plan, vocabulary, host, describe);
    if (standing.kind == Standing::Kind::blocked) shut.insert(step.id);
    if (standing.kind != Standing::Kind::holds) open.insert(step.id);
    survey.steps.push_back(std::move(standing));
  }
  return survey;
}

bool Survey::holds() const { return root_cause() == nullptr; }

bool Survey::blocked() const {
  return std::any_of(steps.begin(), steps.end(), [](const Standing& s) { return s.kind == Standing::Kind::blocked; });
}

int Survey::reboots() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Standing& s) { return s.kind == Standing::Kind::fixable && s.effect == Effect::reboot; });
}

const Standing* Survey::root_cause() const {
  const Standing* unclear = nullptr;
  for (const Standing& s : steps) {
    if (!is_shut(s)) continue;
    if (s.finding.verdict == Verdict::fail) return &s;
    if (unclear == nullptr) unclear = &s;
  }
  return unclear;
}

std::vector<const Step*> Survey::behind(const Standing& gate) const {
  std::vector<const Step*> found;
  std::set<std::string> names = {gate.step->id};
  for (const Standing& s : steps) {
    if (s.kind != Standing::Kind::waits) continue;
    if (std::none_of(s.step->after.begin(), s.step->after.end(), [&](const auto& id) { return names.contains(id); }))
      continue;
    names.insert(s.step->id);
    found.push_back(s.step);
  }
  return found;
}

std::vector<const Step*> Survey::beside(const Standing& gate) const {
  std::vector<const Step*> found;
  for (const Standing& s : steps) {
    if (&s != &gate && is_shut(s)) found.push_back(s.step);
  }
  return found;
}

std::string next_for_operator(const Standing& standing) {
  if (!standing.finding.next.empty()) return standing.finding.next;
  if (!standing.step->operator_text.empty()) return standing.step->operator_text;
  return "\"p2pctl explain " + standing.step->id + "\" tells what is looked at, and where.";
}

}  // namespace p2pd::ctl
