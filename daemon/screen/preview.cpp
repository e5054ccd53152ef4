// SPDX-License-Identifier: MIT
#include "screen/preview.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/image_runner.hpp"
#include "plan/alone_gpus.hpp"
#include "plan/config.hpp"
#include "screen/print.hpp"

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

namespace {

Effect effect_of(const Step& step, const Registry& registry) {
  return step.fix.empty() ? Effect::live : registry.action(step.fix)->effect;
}

Otherwise otherwise_of(const PlanPreview& all, const Plan& plan, const Host& host, const Assessment& seen) {
  Otherwise then;
  if (const auto people = seen.for_a_person(); !people.empty() && people.front() != seen.goal()) {
    const std::string& next = people.front()->next;
    then.obstacle =
        fmt::format("{}: {}", people.front()->step->id, next.empty() ? people.front()->finding.summary : next);
  }
  ChangeTeller teller(plan, all.registry, host, seen);
  for (const Standing& s : seen.steps) {
    const auto now = std::ranges::find(all.seen.steps, s.step->id, [](const Standing& one) { return one.step->id; });
    const bool fixed = now != all.seen.steps.end() && now->is_failing() && all.outlook == Outlook::fixable;
    if (s.kind != Standing::Kind::fixable || !s.step->is_gate() || fixed) continue;
    then.steps.push_back(s.step->id);
    for (const Change& change : teller.tell(s).made) then.changes.push_back(change.description.summary);
  }
  return then;
}

}  // namespace

Otherwise if_the_proof_fails(const PlanPreview& all, const Step* trial) {
  Plan plan = all.plan;
  for (Step& step : plan.steps)
    if (trial != nullptr && step.id == trial->id) step.tried = Tried::ineffective;
  // an alternative may do without what a GPU lacks
  const auto host =
      all.host.snapshot(trial == nullptr ? all.host.alone_gpus() : alone_gpus(plan, all.registry, all.host));
  Assessment seen = trial == nullptr ? all.seen : assess(plan, all.registry, *host);
  Finding refuted;
  refuted.verdict = Verdict::fail;
  refuted.summary = "the proof failed";
  if (seen.goal() != nullptr) seen.judge_goal(refuted);
  return otherwise_of(all, plan, *host, seen);
}

Otherwise if_it_still_fails(const PlanPreview& all, const Step& step) {
  const Assessment seen = assess(all.plan, all.registry, [&](const Step& one) {
    const auto now = std::ranges::find(all.seen.steps, one.id, [](const Standing& s) { return s.step->id; });
    Finding held;
    held.verdict = Verdict::pass;
    if (one.id != step.id && now != all.seen.steps.end() && now->finding.verdict == Verdict::fail) return held;
    const Result<Finding> finding = all.registry.probe(one.check)->check(all.host, one.with);
    return finding ? *finding : unknown(finding.error());
  });
  Otherwise then = otherwise_of(all, all.plan, all.host, seen);
  for (const Preview& preview : all.steps)  // what is changed in any case
    for (const Change& change : preview.changes.made) std::erase(then.changes, change.description.summary);
  return then;
}

bool PlanPreview::reboots_for(const Preview& preview, const Change& change) const {
  return change.step == preview.standing.step && effect_of(*change.step, registry) == Effect::reboot;
}

PlanPreview preview_of(const Plan& plan, const Registry& registry, const Host& host, const Assessment& seen) {
  PlanPreview all{plan, registry, host, seen, {}, seen.outlook()};
  ChangeTeller teller(plan, registry, host, seen);
  for (const Standing& s : seen.steps) {
    const bool needless = all.outlook == Outlook::ready && s.step->kind != StepKind::upkeep;
    all.steps.push_back({s, needless ? Changes{} : teller.tell(s)});
  }
  for (const Preview& preview : all.steps)
    for (const Change& change : preview.changes.made) all.time += change.description.time;
  all.changes = std::ranges::any_of(all.steps, [](const Preview& p) { return !p.changes.made.empty(); });
  all.blocked = all.outlook == Outlook::person || all.outlook == Outlook::impossible ||
                (all.outlook == Outlook::fixable && std::ranges::any_of(all.steps, &Preview::blocked));
  all.reboots = all.outlook == Outlook::ready ? Reboots{} : seen.reboots(registry);
  return all;
}

std::string apply_command(const Plan& plan) {
  return fmt::format("sudo p2pctl apply{}", plan.name == Config().plan ? "" : " " + plan.name);
}

std::string reboots_text(const Reboots& reboots) { return (reboots.most == 0 ? "no" : to_string(reboots)) + " reboot"; }

std::vector<Obstruction> obstructions(const PlanPreview& all) {
  std::vector<Obstruction> found;
  for (const Preview& preview : all.steps) {
    const bool open = all.outlook == Outlook::impossible && preview.standing.finding.verdict == Verdict::unknown;
    if (!preview.blocked() || open) continue;
    auto same = std::ranges::find(found, preview.next(), &Obstruction::next);
    if (same == found.end()) same = found.insert(same, {{}, preview.obstacle(), preview.next()});
    same->steps.push_back(&preview);
  }
  return found;
}

std::vector<std::string> row_of(const Standing& s, const Assessment& seen) {
  const Outlook outlook = seen.outlook();
  const bool excused = (outlook == Outlook::ready || outlook == Outlook::provable) && s.step->kind != StepKind::goal;
  const auto dim = [](const std::string& text) { return paint(Colour::dim, text); };
  const std::string& summary = s.finding.summary;
  if (s.kind == Standing::Kind::untried) return {mark(Verdict::unknown), s.step->id, "not proven on this boot"};
  if (s.kind == Standing::Kind::holds) return {mark(s.finding.verdict), s.step->id, summary};
  if (s.kind == Standing::Kind::note)
    return {dim("·"), dim(s.step->id),
            dim(std::string(s.step->is_gate() ? "not needed here" : "not maintained by p2pd") +
                (summary.empty() ? "" : "; now: " + summary))};
  if (s.kind == Standing::Kind::waits)
    return {dim("·"), dim(s.step->id),
            dim(excused           ? "not in the way" + (summary.empty() ? "" : "; now: " + summary)
                : summary.empty() ? "not checked before the steps above hold"
                                  : "waits; now: " + summary)};
  if (excused && s.step->is_gate())
    return {dim("·"), s.step->id,
            summary + dim(outlook == Outlook::ready ? "  (not in the way here)" : "  (the proof decides)")};
  const bool planned =
      s.kind == Standing::Kind::fixable || s.kind == Standing::Kind::busy || s.kind == Standing::Kind::pending;
  return {planned ? mark_of_planned() : mark(s.finding.verdict), s.step->id, summary};
}

}  // namespace p2pd::ctl
