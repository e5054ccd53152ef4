// SPDX-License-Identifier: MIT
#include "screen/preview.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/config.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

Effect effect_of(const Step& step, const Registry& registry) {
  return step.fix.empty() ? Effect::live : registry.action(step.fix)->effect;
}

}  // namespace

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
    if (!preview.blocked()) continue;
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
  if (excused && s.step->is_gate()) return {dim("·"), s.step->id, summary + dim("  (not in the way here)")};
  const bool planned =
      s.kind == Standing::Kind::fixable || s.kind == Standing::Kind::busy || s.kind == Standing::Kind::pending;
  return {planned ? mark_of_planned() : mark(s.finding.verdict), s.step->id, summary};
}

}  // namespace p2pd::ctl
