// SPDX-License-Identifier: MIT
#include "plan/assess.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json_members.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/driver/ready.hpp"

namespace p2pd {
namespace {

using Kind = Standing::Kind;

bool names_any(const std::vector<std::string>& names, const std::set<std::string>& steps) {
  return std::ranges::any_of(names, [&](const std::string& name) { return steps.contains(name); });
}

/// True if the finding reports a danger to a proof that p2pd cannot fix: no other step is worth waiting for.
bool endangers(const Standing& standing) {
  return !standing.finding.danger.empty() && !standing.finding.holds() && !standing.step->is_fixable();
}

/// Next action of the operator for a step that does not hold; empty: none known.
std::string next_for(const Step& step, const Finding& finding) {
  return finding.next.empty() ? step.operator_text : finding.next;
}

/// Finds the obstacles that keep the steps of one plan from being fixed.
class Obstacles {
 public:
  Obstacles(const Plan& plan, const Registry& registry, const Check& check, std::map<std::string, Finding>& needs)
      : plan_(plan), registry_(registry), check_(check), needs_(needs) {}

  /// Sets the state of a step that does not hold: fixable, busy or blocked.
  void look_at(Standing& standing) {
    const Step& step = *standing.step;
    if (standing.finding.verdict == Verdict::unknown || !step.is_fixable() || standing.finding.impossible)
      return obstruct(standing, step, standing.finding);
    standing.kind = Kind::fixable;
    const bool lacks = look_at_needs(step, standing);
    if (!lacks && step.fix.empty()) obstruct(standing, step, standing.finding);  // every requirement holds already
  }

  bool holds(const std::string& name) { return finding(name).holds(); }

 private:
  const Finding& finding(const std::string& name) {
    const auto [seen, first] = needs_.try_emplace(name);
    if (first) seen->second = check_(*plan_.step(name));
    return seen->second;
  }

  /// True if a direct or indirect requirement of `step` does not hold. The obstacle is the first requirement that p2pd
  /// cannot satisfy; a lasting one takes precedence over a transient one.
  bool look_at_needs(const Step& step, Standing& standing) {
    bool lacks = false;
    for (const std::string& name : step.needs) {
      if (standing.kind == Kind::blocked) break;
      const Step& need = *plan_.step(name);
      const Finding& found = finding(name);
      if (found.holds()) continue;
      lacks = true;
      if (found.verdict != Verdict::unknown && need.is_fixable()) {
        look_at_needs(need, standing);
        continue;
      }
      if (standing.kind == Kind::busy && is_transient(need, found)) continue;
      standing.obstacle = name + ": " + found.summary;
      obstruct(standing, need, found);
    }
    return lacks;
  }

  bool is_transient(const Step& step, const Finding& found) const {
    return found.verdict == Verdict::fail && registry_.probe(step.check)->transient;
  }

  void obstruct(Standing& standing, const Step& step, const Finding& found) const {
    standing.next = next_for(step, found);
    standing.transient = is_transient(step, found);
    standing.impossible = found.impossible;
    standing.kind = standing.transient && plan_.policy.busy == Busy::wait ? Kind::busy : Kind::blocked;
    if (standing.next.empty()) standing.next = "\"p2pctl explain " + step.id + "\" shows what is checked, and where.";
  }

  const Plan& plan_;
  const Registry& registry_;
  const Check& check_;
  std::map<std::string, Finding>& needs_;
};

/// Names the arguments that blocked steps want in each `next` that asks the operator to add them, all at once: one
/// reboot is enough.
void name_arguments(std::vector<Standing>& steps) {
  const auto asks = [](const Standing& s) {
    return s.kind == Kind::blocked && s.next.find(kTheArguments) != s.next.npos;
  };
  std::vector<std::string> wanted;
  for (const Standing& s : steps)
    if (asks(s) && s.step->with.contains("arguments"))
      wanted = merged_arguments(std::move(wanted), wanted_kernel_arguments(s.step->with));
  std::erase(wanted, kChosenAcsArgument);
  if (wanted.empty()) return;
  for (Standing& s : steps) {
    if (!asks(s)) continue;
    const std::size_t at = s.next.find(kTheArguments);
    if (s.next.find(kTheGrubArguments) == at)
      s.next.replace(at, kTheGrubArguments.size(), grub_line(wanted));
    else
      s.next.replace(at, kTheArguments.size(), fmt::format("{}", fmt::join(wanted, " ")));
  }
}

/// "P2P is proven on this boot: 2 ordered pairs, ..." from the summary "proven: 2 ordered pairs, ..." of a proof.
std::string proven_text(std::string_view summary) {
  constexpr std::string_view kProven = "proven";
  std::string text = "P2P is proven on this boot";
  if (summary.starts_with(kProven)) return text.append(summary.substr(kProven.size()));
  return summary.empty() ? text : text.append("; ").append(summary);
}

}  // namespace

std::string_view to_string(Kind kind) {
  static constexpr std::string_view kNames[] = {"holds", "note",    "untried", "fixable",
                                                "busy",  "pending", "blocked", "waits"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Outlook outlook) {
  static constexpr std::string_view kNames[] = {"ready", "limited", "provable", "fixable", "person", "impossible"};
  return kNames[static_cast<std::size_t>(outlook)];
}

Finding finding_of(const Step& step, const Registry& registry, const Host& host) {
  const Result<Finding> finding = registry.probe(step.check)->check(host, step.with);
  return finding ? *finding : unknown(finding.error());
}

SparedGates spared_gates(const Plan& plan, const Check& check) {
  SparedGates spared;
  for (const Step& step : plan.steps) {
    if (step.spares.empty() || !step.is_gate()) continue;
    const Verdict verdict = (spared.sparing[step.id] = check(step)).verdict;
    if (verdict == Verdict::pass || verdict == Verdict::fail) spared.all.insert(step.spares.begin(), step.spares.end());
    if (verdict == Verdict::pass) spared.now.insert(step.spares.begin(), step.spares.end());
  }
  return spared;
}

Assessment assess(const Plan& plan, const Registry& registry, const Check& check,
                  const std::set<std::string>& pending) {
  Assessment all;
  Obstacles obstacles(plan, registry, check, all.needs);
  const Step* goal = plan.goal();
  std::set<std::string> unsettled;  // steps that do not hold, and all steps after them
  std::set<std::string> hidden;     // blocked steps, and all steps after them: those are not checked
  const SparedGates spared = spared_gates(plan, check);
  for (const Step& step : plan.steps) {
    if (!step.is_checked()) continue;
    Standing& standing = all.steps.emplace_back();
    standing.step = &step;
    if (&step == goal) continue;
    const bool asked_first = goal != nullptr && std::ranges::find(goal->after, step.id) != goal->after.end();
    const bool waits = names_any(step.after, unsettled);
    const bool skipped = names_any(step.after, hidden) && !asked_first;
    const auto known = spared.sparing.find(step.id);
    if (!skipped) standing.finding = known != spared.sparing.end() ? known->second : check(step);
    if (standing.finding.holds())
      standing.kind = Kind::holds;
    else if (pending.contains(step.id))
      standing.kind = Kind::pending;
    else if (spared.all.contains(step.id) ||
             !std::ranges::all_of(step.where, [&](const std::string& name) { return obstacles.holds(name); }))
      standing.kind = Kind::note;
    else if ((waits || skipped) && !endangers(standing))
      standing.kind = Kind::waits;
    else
      obstacles.look_at(standing);
    standing.spared = spared.now.contains(step.id);
    const bool settled = standing.kind == Kind::holds || spared.all.contains(step.id);
    if (waits || !settled) unsettled.insert(step.id);
    if (skipped || standing.kind == Kind::blocked) hidden.insert(step.id);
  }
  name_arguments(all.steps);
  all.conclude();
  if (goal == nullptr || all.goal()->kind != Kind::untried) return all;
  for (Standing& standing : all.steps) {  // the goal would be tried: a skipped check may report a danger
    if (!standing.finding.summary.empty() || spared.all.contains(standing.step->id) ||
        !registry.probe(standing.step->check)->tells_danger)
      continue;
    standing.finding = check(*standing.step);
    if (standing.finding.holds()) standing.kind = Kind::holds;
    if (endangers(standing)) obstacles.look_at(standing);
  }
  all.conclude();
  return all;
}

Assessment assess(const Plan& plan, const Registry& registry, const Host& host) {
  Assessment all = assess(plan, registry, [&](const Step& step) { return finding_of(step, registry, host); });
  if (const Result<Proof> proof = require_proof(host); proof && all.goal() != nullptr && !all.goal_waits_for_a_fix()) {
    Finding proven;
    proven.verdict = proof->limited ? Verdict::limited : Verdict::pass;
    proven.fit_for = proof->fit_for;
    if (proof->limited) proven.next = "\"p2pctl bench\" shows what is wrong, with pair and direction";
    proven.summary = proof->limited
                         ? fmt::format("P2P is proven on this boot, but only for {}", fmt::join(proof->fit_for, ", "))
                         : proven_text(proof->summary);
    all.judge_goal(std::move(proven));
  }
  return all;
}

Standing* Assessment::goal() {
  const auto found = std::ranges::find_if(steps, [](const Standing& s) { return s.step->kind == StepKind::goal; });
  return found == steps.end() ? nullptr : &*found;
}

bool Assessment::goal_waits_for_a_fix() {
  return std::ranges::any_of(steps, [&](const Standing& s) {
    const bool first = std::ranges::find(goal()->step->after, s.step->id) != goal()->step->after.end();
    return first && !s.step->fix.empty() && (s.kind == Kind::fixable || s.kind == Kind::busy);
  });
}

void Assessment::judge_goal(Finding finding) {
  goal()->finding = std::move(finding);
  conclude();
}

/// Derives the state of the goal from its finding and the gates.
void Assessment::conclude() {
  Standing* const reached = goal();
  if (reached == nullptr) return;
  const bool tried = !reached->finding.summary.empty();
  const bool open = !gates_hold();
  if (tried)
    reached->kind = reached->finding.holds() ? Kind::holds : open ? Kind::waits : Kind::blocked;
  else
    reached->kind = !open || (danger().empty() && may_be_tried()) ? Kind::untried : Kind::waits;
  if (reached->kind == Kind::blocked) reached->next = next_for(*reached->step, reached->finding);
}

bool Assessment::may_be_tried() const {
  const Standing* last = nullptr;
  for (const Standing& s : steps) {
    if (std::ranges::find(goal()->step->after, s.step->id) == goal()->step->after.end()) continue;
    if (s.kind != Kind::holds && !s.spared) return false;
    last = &s;
  }
  return last == nullptr || last->finding.verdict == Verdict::pass;
}

std::vector<const Standing*> Assessment::excused() const {
  std::vector<const Standing*> found;
  if (goal() == nullptr || goal()->kind != Kind::untried) return found;
  for (const Standing& s : steps)
    if (s.step->kind == StepKind::gate && !s.spared && !s.finding.summary.empty() && !s.finding.holds())
      found.push_back(&s);
  return found;
}

bool Assessment::nothing_to_mend() const {
  return goal() != nullptr && (goal()->kind == Kind::holds || goal()->kind == Kind::untried);
}

bool Assessment::gates_hold() const {
  return std::ranges::all_of(
      steps, [](const Standing& s) { return !s.step->is_gate() || s.kind == Kind::holds || s.kind == Kind::note; });
}

std::string Assessment::danger() const {
  for (const Standing& s : steps)
    if (!s.finding.danger.empty() && !s.finding.holds() && !s.spared) return s.finding.danger;
  return {};
}

Outlook Assessment::outlook() const {
  const Standing* const reached = goal();
  if (reached == nullptr ? gates_hold() : reached->kind == Kind::holds) return Outlook::ready;
  if (reached != nullptr && reached->kind == Kind::untried) return Outlook::provable;
  const bool more = std::ranges::any_of(
      steps, [](const Standing& s) { return s.step->is_gate() && (s.kind == Kind::fixable || s.kind == Kind::busy); });
  if (reached != nullptr && reached->finding.verdict == Verdict::limited && !more) return Outlook::limited;
  const Standing* const cause = root_cause();
  if (cause != nullptr && cause->impossible) return Outlook::impossible;
  return for_a_person().empty() ? Outlook::fixable : Outlook::person;
}

const Standing* Assessment::root_cause() const {
  if (nothing_to_mend()) return nullptr;
  const Standing* first = nullptr;
  const auto rank = [](const Standing& s) {
    if (s.impossible) return 4;
    if (s.kind != Kind::blocked) return 0;
    if (!s.finding.danger.empty()) return 3;
    return s.finding.verdict == Verdict::fail ? 2 : 1;  // an unknown result explains little
  };
  for (const Standing& s : steps)
    if (s.step->kind != StepKind::upkeep && s.is_failing() && (first == nullptr || rank(s) > rank(*first))) first = &s;
  return first;
}

std::vector<const Standing*> Assessment::for_a_person() const {
  std::vector<const Standing*> found;
  if (nothing_to_mend()) return found;
  for (const Standing& s : steps)
    if (s.step->kind != StepKind::upkeep && s.kind == Kind::blocked) found.push_back(&s);
  return found;
}

Reboots Assessment::reboots(const Registry& registry) const {
  Reboots due;
  if (nothing_to_mend()) return due;
  for (const Standing& s : steps) {
    const bool changes = s.step->is_gate() && (s.kind == Kind::fixable || s.kind == Kind::busy ||
                                               s.kind == Kind::pending || s.kind == Kind::waits);
    if (!changes || s.step->fix.empty()) continue;
    const Action& action = *registry.action(s.step->fix);
    if (action.effect != Effect::reboot) continue;
    due.most = 1;
    if (!action.reboot_suffices || s.kind == Kind::pending || field_of(s.finding.facts, "reboot") == true)
      due.least = 1;
  }
  return due;
}

std::string to_string(const Reboots& reboots) {
  return reboots.least == reboots.most ? fmt::format("{}", reboots.most)
                                       : fmt::format("{} or {}", reboots.least, reboots.most);
}

}  // namespace p2pd
