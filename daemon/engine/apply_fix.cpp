// SPDX-License-Identifier: MIT
// What a walk does about a step that does not hold: what it needs first, then its fix, as often as the plan allows.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/ready.hpp"
#include "engine/walk.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::seconds kBetweenAttempts{2};

}  // namespace

/// Notes an obstacle; where what the step comes after was changed by this run, that was in vain.
void Walk::block(const Step& step, std::string why, bool passes, Pass& pass) const {
  pass.ineffective |= !passes && follows_a_change(step);
  pass.lasting |= !passes;
  pass.blockers.push_back(std::move(why));
}

/// Whether this run has changed what `step` needs or comes after, however far: then that was to make it hold.
bool Walk::follows_a_change(const Step& step) const {
  const auto changed = [&](const std::string& name) { return is_changed(name) || follows_a_change(*plan_.step(name)); };
  return std::ranges::any_of(step.after, changed) || std::ranges::any_of(step.needs, changed);
}

/// A gate without a fix of its own that comes, however far, after an alternative on trial that this run made hold: that does not
/// help. What the gate needs is for later.
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

/// The proof failed, or a gate that the alternative on trial was to open: it is undone, and the plan's next one that does not hold
/// yet becomes a gate. One that was tried first leaves its place to the gates after it. False: there is none left.
Result<bool> Walk::try_alternative() {
  bool spent = false;
  if (const auto trial = std::ranges::find(plan_.steps, Tried::now, &Step::tried); trial != plan_.steps.end()) {
    const bool goes_on = trial->first && is_changed(trial->id);
    TRY(undo_step(*trial));
    trial->tried = Tried::ineffective;
    spent = true;
    if (goes_on) {
      run_.resolved = to_json(plan_).dump();
      TRY(s_.journal.save(run_, event("escalated", trial->id, "it did not help, and is undone: what comes after it is tried")));
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
    run_.resolved = to_json(plan_).dump();
    TRY(s_.journal.save(run_, event("escalated", step.id, "the proof failed: this is tried")));
    return true;
  }
  if (!spent) return false;
  run_.resolved = to_json(plan_).dump();
  TRY(s_.journal.save(run_, event("not-escalated", "", "the proof failed, and no alternative is left")));
  return false;
}

/// Undoes what a step of this run changed, and so what this run changed after it.
Result<void> Walk::undo_step(const Step& step) {
  while (is_changed(step.id)) {
    const std::optional<UndoStore::Owner> newest = undoable();
    if (!newest) return {};  // its fix ran, and changed nothing
    TRY_IN("undo of " + newest->step, undo(*newest));
  }
  return {};
}

/// Makes a step hold that does not, and can be made to.
Result<void> Walk::apply_fix(const Step& step, Pass& pass) {
  StepRecord& known = record(step.id);
  if (known.status == StepStatus::pending_reboot && !TRY(survived(step, known, pass))) return {};
  if (!TRY(satisfy_requirements(step.needs, pass))) return {};
  if (!pass.pending.empty() && reboot_suffices(step)) {
    known.status = StepStatus::pending_reboot;
    known.applied_boot = boot_;
    pass.pending.push_back(step.id);
    return s_.journal.save(run_, {known}, in_place(), event("left-to-reboot", step.id, "the reboot that is due anyway does it"));
  }
  if (!step.fix.empty()) {
    TRY(fix(step, pass));
  } else if (const Finding finding = check(step); finding.holds()) {
    known.status = StepStatus::fixed;
  } else if (pass.requirements_changed) {  // what the step comes after was found to hold before that: it is looked at again
    known.status = StepStatus::waiting;
  } else {
    known.status = StepStatus::blocked;
    block(step, why_ineffective(step, finding), false, pass);
  }
  if (known.status == StepStatus::pending_reboot) pass.pending.push_back(step.id);
  return {};
}

/// Brings what is needed, in order; false where that did not come to its end: `pass` has why.
Result<bool> Walk::satisfy_requirements(const std::vector<std::string>& needs, Pass& pass) {
  for (const std::string& name : needs) {
    const Step& need = *plan_.step(name);
    if (check(need).holds()) {
      TRY(s_.undo.clear_unfinished(owner(need)));
      continue;
    }
    if ((pass.asked = asked_for())) return false;
    if (!TRY(satisfy_requirements(need.needs, pass))) return false;
    TRY(fix(need, pass));
    if (!pass.failure.empty() || pass.asked) return false;
    pass.requirements_changed = true;
    if (const Finding finding = check(need); !finding.holds()) {
      const bool passes = finding.verdict == Verdict::fail && s_.registry.probe(need.check)->transient;
      block(need, fmt::format("{}: {}", name, finding.summary), passes, pass);
      return false;
    }
  }
  return true;
}

/// A step that does not hold after its reboot fails, unless that boot may have crashed for the first time.
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
  pass.failure =
      fmt::format("{}: the boot that tried it did not come up, {} times: {}", step.id, known.crashes, seen);
  return false;
}

Result<void> Walk::fix(const Step& step, Pass& pass) {
  StepRecord& known = record(step.id);
  if (known.crashes >= kCrashes) {
    pass.failure = fmt::format("{}: its fix brought the machine down {} times", step.id, known.crashes);
    return {};
  }
  std::string why;
  while (known.attempts < plan_.policy.attempts) {
    if (known.attempts > 0 && (pass.asked = asked_for())) return {};
    if (known.attempts > 0) s_.clock.wait(kBetweenAttempts);
    why = TRY(attempt(step));
    if (why.empty()) return {};
  }
  if ((pass.asked = asked_for())) {  // what may have been cut short by it is no failure
    known.attempts = 0;
    return {};
  }
  known.status = StepStatus::failed;
  if (why.empty()) why = check(step).summary;  // an earlier start used up the attempts
  pass.failure = fmt::format("{} could not be fixed in {} attempts: {}", step.id, known.attempts, why);
  return {};
}

/// One try of a fix, between two journal entries; why it did not work, or empty.
Result<std::string> Walk::attempt(const Step& step) {
  const Action& act = action(step);
  StepRecord& known = record(step.id);
  const Intent::Kind kind = act.hazard && act.effect == Effect::live ? Intent::Kind::hazard : Intent::Kind::fix;
  const std::int64_t intent =
      TRY(s_.journal.open_intent(run_, {0, kind, step.id, boot_}, event("fixing", step.id, step.title)));
  TRY_IN("ready file", withdraw_ready(s_.host));  // what was proven is about to change
  s_.undo.begin(owner(step));
  s_.observer.fixing(step);
  Result<void> done = act.apply(s_.host, step.with);
  if (!done && done.error().code == ErrorCode::interrupted) return Failure(done.error());
  if (done) done = s_.host.files().make_durable();  // before it is on record as fixed
  if (done) done = s_.undo.note_result();
  std::string why = done ? "" : done.error().text();
  ++known.attempts;
  known.applied = true;
  if (done) {
    const Finding finding = check(step);
    known.finding = to_json(finding);
    known.applied_boot = boot_;
    known.status = finding.holds()                   ? StepStatus::fixed
                   : act.effect == Effect::reboot ? StepStatus::pending_reboot
                                                     : StepStatus::waiting;
    if (finding.holds()) known.attempts = 0;
    if (known.status == StepStatus::waiting) why = "its fix ran, yet: " + finding.summary;
  }
  s_.observer.fixed(step, known, why.empty() ? Result<void>() : fail(ErrorCode::command, why));
  const char* type = why.empty() ? "fixed" : "fix-failed";
  TRY(s_.journal.close_intent(intent, run_, known, event(type, step.id, why)));
  return why;
}

}  // namespace p2pd
