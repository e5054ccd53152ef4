// SPDX-License-Identifier: MIT
// Fixing a step that does not hold: its requirements first, then its fix, as often as the plan allows.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/walk.hpp"
#include "machine/driver/ready.hpp"
#include "plan/alone_gpus.hpp"
#include "plan/journalled_plan.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::seconds kBetweenAttempts{2};

}  // namespace

/// Records a blocker. If this run changed a prerequisite of the step, that change was ineffective.
void Walk::block(const Step& step, std::string why, bool passes, Pass& pass) const {
  pass.ineffective |= !passes && follows_a_change(step);
  pass.lasting |= !passes;
  pass.blockers.push_back(std::move(why));
}

/// True if this run has changed a direct or indirect requirement or prerequisite of `step`.
bool Walk::follows_a_change(const Step& step) const {
  const auto changed = [&](const std::string& name) { return is_changed(name) || follows_a_change(*plan_.step(name)); };
  return std::ranges::any_of(step.after, changed) || std::ranges::any_of(step.needs, changed);
}

/// True for a gate without a fix of its own that follows, at any distance, a changed alternative that is tried first:
/// the alternative does not help. The requirements of the gate are not considered.
bool Walk::refuses_trial(const Step& step) const {
  if (!step.fix.empty()) return false;
  const std::function<bool(const Step&)> follows = [&](const Step& one) {
    return std::ranges::any_of(one.after, [&](const std::string& name) {
      const Step& earlier = *plan_.step(name);
      return (earlier.first && earlier.tried == Tried::now && is_changed(name)) || follows(earlier);
    });
  };
  return follows(step);
}

/// Undoes the alternative on trial after a failed proof or a failing gate, and makes the plan's next alternative that
/// does not hold a gate. After an alternative that was tried first, the gates after it are next. Returns false if no
/// alternative is left.
Result<bool> Walk::try_alternative() {
  bool spent = false;
  const auto on_trial = [](const Step& step) { return step.tried == Tried::now; };
  auto trial =
      std::ranges::find_if(plan_.steps, [&](const Step& step) { return on_trial(step) && is_changed(step.id); });
  if (trial == plan_.steps.end()) trial = std::ranges::find_if(plan_.steps, on_trial);
  if (trial != plan_.steps.end()) {
    const bool goes_on = trial->first && is_changed(trial->id);
    TRY(undo_step(*trial));
    trial->tried = Tried::ineffective;
    spent = true;
    if (!trial->spares.empty()) {  // gates that it did without count from now on
      plan_.gpus.alone.reset();
      choose_gpus(s_.host, plan_, s_.registry);
    }
    if (goes_on) {
      run_.resolved = journal_text(plan_);
      TRY(s_.journal.save(run_,
                          event("escalated", trial->id, "ineffective, and undone: the next alternative is tried")));
      return true;
    }
  }
  for (Step& step : plan_.steps) {
    if (step.kind != StepKind::alternative || step.tried != Tried::no) continue;
    spent = true;
    if (check(step).holds()) {
      step.tried = Tried::ineffective;
      continue;
    }
    step.tried = Tried::now;
    run_.resolved = journal_text(plan_);
    TRY(s_.journal.save(run_, event("escalated", step.id, "the proof failed: this alternative is tried")));
    return true;
  }
  if (!spent) return false;
  run_.resolved = journal_text(plan_);
  TRY(s_.journal.save(run_, event("not-escalated", "", "the proof failed, and no alternative is left")));
  return false;
}

/// Undoes the changes of a step of this run, and with them the later changes of this run.
Result<void> Walk::undo_step(const Step& step) {
  while (is_changed(step.id)) {
    const std::optional<UndoStore::Owner> newest = undoable();
    if (!newest) return {};  // its fix ran, and changed nothing
    TRY_IN("undo of " + newest->step, undo(*newest));
  }
  return {};
}

/// Fixes a step that does not hold.
Result<void> Walk::apply_fix(const Step& step, Pass& pass) {
  StepRecord& known = record(step.id);
  if (known.status == StepStatus::pending_reboot && !TRY(survived(step, known, pass))) return {};
  if (!TRY(satisfy_requirements(step.needs, pass))) return {};
  if (!pass.pending.empty() && reboot_suffices(step)) {
    known.status = StepStatus::pending_reboot;
    known.applied_boot = boot_;
    pass.pending.push_back(step.id);
    return s_.journal.save(run_, {known}, in_place(),
                           event("left-to-reboot", step.id, "done by the reboot that is due anyway"));
  }
  if (!step.fix.empty()) {
    TRY(fix(step, pass));
  } else if (const Finding finding = check(step); finding.holds()) {
    known.status = StepStatus::fixed;
  } else if (pass.requirements_changed) {  // the requirements are new: the step's prerequisites are checked again
    known.status = StepStatus::waiting;
  } else {
    known.status = StepStatus::blocked;
    block(step, why_ineffective(step, finding), false, pass);
  }
  if (known.status == StepStatus::pending_reboot) pass.pending.push_back(step.id);
  return {};
}

/// Satisfies requirements in order. Returns false if one was not satisfied: `pass` has the reason.
Result<bool> Walk::satisfy_requirements(const std::vector<std::string>& needs, Pass& pass) {
  for (const std::string& name : needs) {
    const Step& need = *plan_.step(name);
    if (check(need).holds()) {
      TRY(s_.undo.clear_unfinished(owner(need)));
      continue;
    }
    if ((pass.asked = asked_for())) return false;
    if (!TRY(satisfy_requirements(need.needs, pass))) return false;
    const std::size_t blocked = pass.blockers.size();
    TRY(fix(need, pass));
    if (!pass.failure.empty() || pass.asked || pass.blockers.size() > blocked) return false;
    pass.requirements_changed = true;
    if (const Finding finding = check(need); !finding.holds()) {
      const bool passes = finding.verdict == Verdict::fail && s_.registry.probe(need.check)->transient;
      block(need, fmt::format("{}: {}", name, finding.summary), passes, pass);
      return false;
    }
  }
  return true;
}

/// Fails a step that does not hold after its reboot, except after the first possible crash of that boot.
Result<bool> Walk::survived(const Step& step, StepRecord& known, Pass& pass) {
  const std::string seen = known.finding.value("summary", "");
  if (!action(step).hazard) {
    known.status = StepStatus::failed;
    pass.failure = fmt::format("{} still does not hold after its reboot: {}", step.id, seen);
    return false;
  }
  ++known.crashes;
  known.attempts = 0;
  TRY(close_intents(known, "crashed"));
  if (known.crashes < kCrashes) return true;
  known.status = StepStatus::failed;
  pass.failure = fmt::format("{}: the trial boot did not come up, {} times: {}", step.id, known.crashes, seen);
  return false;
}

Result<void> Walk::fix(const Step& step, Pass& pass) {
  StepRecord& known = record(step.id);
  if (known.crashes >= kCrashes) {
    pass.failure = fmt::format("{}: its fix crashed the machine {} times", step.id, known.crashes);
    return {};
  }
  std::string why;
  while (known.attempts < plan_.policy.attempts) {
    if (known.attempts > 0 && (pass.asked = asked_for())) return {};
    if (known.attempts > 0) s_.clock.wait(kBetweenAttempts);
    why = TRY(attempt(step));
    if (why.empty()) return {};
    if (const std::optional<std::string> busy = passing_need(step)) {  // it came after the requirements were checked
      known.attempts = 0;
      known.status = StepStatus::blocked;
      block(step, *busy, true, pass);
      return {};
    }
  }
  if ((pass.asked = asked_for())) {  // an attempt that the request may have interrupted is no failure
    known.attempts = 0;
    return {};
  }
  known.status = StepStatus::failed;
  if (why.empty()) why = check(step).summary;  // an earlier start used up the attempts
  pass.failure = fmt::format("{} could not be fixed in {} attempts: {}", step.id, known.attempts, why);
  return {};
}

/// Failing requirement of a step, at any distance, that ends without p2pd, such as a held lock of dpkg.
std::optional<std::string> Walk::passing_need(const Step& step) const {
  for (const std::string& name : step.needs) {
    const Step& need = *plan_.step(name);
    if (const Probe& probe = *s_.registry.probe(need.check); probe.transient)
      if (const Finding finding = check(need); finding.verdict == Verdict::fail)
        return fmt::format("{} needs {}: {}", step.id, name, finding.summary);
    if (std::optional<std::string> deeper = passing_need(need)) return deeper;
  }
  return std::nullopt;
}

/// Runs a fix once, with an intent. Returns the reason why it did not work, or empty.
Result<std::string> Walk::attempt(const Step& step) {
  const Action& act = action(step);
  const Intent::Kind kind = act.hazard && act.effect == Effect::live ? Intent::Kind::hazard : Intent::Kind::fix;
  std::string why;
  TRY(with_intent(kind, step.id, event("fixing", step.id, step.title), [&](StepRecord& known) -> Result<JournalEvent> {
    TRY_IN("ready file", withdraw_ready(s_.host));  // the proven state is about to change
    s_.undo.begin(owner(step));
    s_.observer.fixing(step);
    Result<void> done = act.apply(s_.host, step.with);
    if (!done && done.error().code == ErrorCode::interrupted) return Failure(done.error());
    if (done) done = s_.host.files().make_durable();  // before the journal records it as fixed
    if (done) done = s_.undo.note_result();
    if (!done) why = done.error().text();
    ++known.attempts;
    known.applied = true;
    if (done) {
      const Finding finding = check(step);
      known.finding = to_json(finding);
      known.applied_boot = boot_;
      known.status = finding.holds()                ? StepStatus::fixed
                     : act.effect == Effect::reboot ? StepStatus::pending_reboot
                                                    : StepStatus::waiting;
      if (finding.holds()) known.attempts = 0;
      if (known.status == StepStatus::waiting) why = "its fix succeeded, but the check fails: " + finding.summary;
    }
    s_.observer.fixed(step, known, why.empty() ? Result<void>() : fail(ErrorCode::command, why));
    return event(why.empty() ? "fixed" : "fix-failed", step.id, why);
  }));
  return why;
}

}  // namespace p2pd
