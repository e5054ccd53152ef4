// SPDX-License-Identifier: MIT
#include "ctl/survey.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/image_runner.hpp"

namespace p2pd::ctl {
namespace {

Finding check(const Step& step, const Vocabulary& vocabulary, const Host& host) {
  const Result<Finding> finding = vocabulary.probe(step.check)->check(host, step.with);
  return finding ? *finding : unknown(finding.error());
}

Standing::Kind kind_of(const Step& step, const Finding& finding) {
  return finding.verdict == Verdict::fail && step.can_be_mended() ? Standing::Kind::fixable : Standing::Kind::blocked;
}

bool is_shut(const Standing& s) { return s.kind == Standing::Kind::fixable || s.kind == Standing::Kind::blocked; }

/// Looks at what p2pd would do about the steps of one plan that do not hold.
class Fixes {
 public:
  Fixes(const Plan& plan, const Vocabulary& vocabulary, const Host& host, bool describe)
      : plan_(plan), vocabulary_(vocabulary), host_(host), describe_(describe) {}

  /// What making it hold would change, and whether it could be made to.
  void look_at(Standing& standing) {
    const Step& step = *standing.step;
    look_at_needs(step, standing);
    if (!step.fix.empty()) describe(step, standing);
  }

  /// Fact "ends" of the requirements.
  std::vector<std::string> ends() const {
    std::vector<std::string> all;
    for (const auto& [name, finding] : needs_)
      for (const nlohmann::json& one : finding.facts.value("ends", nlohmann::json::array())) all.push_back(one);
    return all;
  }

 private:
  void look_at_needs(const Step& step, Standing& standing) {
    for (const std::string& name : step.needs) {
      const Step& need = *plan_.step(name);
      const auto [seen, first] = needs_.try_emplace(name);
      if (first) seen->second = check(need, vocabulary_, host_);
      const Finding& finding = seen->second;
      if (finding.holds()) continue;
      const bool ends = finding.verdict == Verdict::fail && vocabulary_.probe(need.check)->passes_by_itself;
      if (ends && plan_.policy.busy == Busy::wait) {
        if (standing.obstacle.empty()) standing.obstacle = name + ": " + finding.summary;  // the walk waits for its end
        continue;
      }
      if (!need.can_be_mended() || finding.verdict == Verdict::unknown) {
        block(standing, name + ": " + finding.summary, finding.next);
        continue;
      }
      look_at_needs(need, standing);
      if (first) describe(need, standing);  // told once, where it is met first
    }
  }

  void describe(const Step& step, Standing& standing) {
    if (!describe_) return;
    Result<Description> told = vocabulary_.action(step.fix)->describe(host_, step.with);
    if (!told && is_not_run(told.error())) {
      told.emplace();
      told->summary = "not told of an image: only what runs in it knows";
    }
    if (told)
      standing.changes.push_back({&step, *std::move(told)});
    else
      block(standing, told.error().message, told.error().next);
  }

  static void block(Standing& standing, std::string obstacle, const std::string& next) {
    if (standing.obstacle.empty()) {
      standing.obstacle = std::move(obstacle);
      if (!next.empty()) standing.finding.next = next;
    }
    standing.kind = Standing::Kind::blocked;
  }

  const Plan& plan_;
  const Vocabulary& vocabulary_;
  const Host& host_;
  bool describe_;
  std::map<std::string, Finding> needs_;
};

}  // namespace

std::string_view to_string(Standing::Kind kind) {
  static constexpr std::string_view kNames[] = {"holds", "fixable", "blocked", "waits"};
  return kNames[static_cast<std::size_t>(kind)];
}

Survey survey(const Plan& plan, const Vocabulary& vocabulary, const Host& host, bool describe) {
  Survey survey;
  Fixes fixes(plan, vocabulary, host, describe);
  bool open = false;                // a step does not hold
  std::set<std::string> unsettled;  // does not hold, or comes after such a step, however far
  std::set<std::string> shut;       // does not hold, nor can p2pd make it so now: what comes after it is not looked at
  for (const Step& step : plan.steps) {
    if (!step.is_checked()) continue;
    Standing standing;
    standing.step = &step;
    const auto among = [&](const std::set<std::string>& steps) {
      return std::any_of(step.after.begin(), step.after.end(), [&](const auto& id) { return steps.contains(id); });
    };
    if (among(shut) || (vocabulary.probe(step.check)->proves_p2p && open)) {
      standing.kind = Standing::Kind::waits;
      shut.insert(step.id);
    } else {
      standing.finding = check(step, vocabulary, host);
      standing.kind = among(unsettled) ? Standing::Kind::waits : kind_of(step, standing.finding);
      if (standing.finding.holds()) standing.kind = Standing::Kind::holds;
    }
    if (!step.fix.empty()) standing.effect = vocabulary.action(step.fix)->effect;
    if (standing.kind == Standing::Kind::fixable) fixes.look_at(standing);
    if (standing.kind == Standing::Kind::blocked) shut.insert(step.id);
    open |= standing.kind != Standing::Kind::holds;
    if (standing.kind != Standing::Kind::holds || among(unsettled)) unsettled.insert(step.id);
    survey.steps.push_back(std::move(standing));
  }
  survey.ends = fixes.ends();
  return survey;
}

bool Survey::holds() const { return root_cause() == nullptr; }

bool Survey::blocked() const {
  return std::any_of(steps.begin(), steps.end(), [](const Standing& s) { return s.kind == Standing::Kind::blocked; });
}

int Survey::reboots() const {
  return std::any_of(steps.begin(), steps.end(), [](const Standing& s) {
    return s.kind != Standing::Kind::holds && s.kind != Standing::Kind::blocked && s.effect == Effect::reboot;
  });
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
