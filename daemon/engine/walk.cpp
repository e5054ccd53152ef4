// SPDX-License-Identifier: MIT
// The walk: passes and rollbacks until the run settles, its boots, and what it records in the journal.
#include "engine/walk.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "engine/hooks.hpp"
#include "engine/status.hpp"
#include "plan/journalled_plan.hpp"
#include "plan/resolve.hpp"

namespace p2pd {

Result<Run> Walk::walk() {
  if (run_.state == RunState::walking && !unread_) TRY(choose());
  std::optional<Outcome> outcome = TRY(note_boot());
  if (run_.state == RunState::walking && unread_) {
    const bool stands = s_.host.files().exists(ready_file()) && was_proven();  // it waits for its commit: P2P works
    outcome = stands ? Outcome{Event::blocker, unread_->text()} : give_up(unread_->text());
  }
  for (;; outcome.reset()) {
    if (!outcome) outcome = run_.state == RunState::reverting ? TRY(roll_back()) : TRY(pass());
    if (outcome->event == Event::reboot_due) {
      std::optional<Outcome> other = TRY(wait_until_idle());
      outcome = other ? *std::move(other) : TRY(restart(outcome->reason));
    }
    const bool undoes = next_state(run_.state, outcome->event) == RunState::reverting;
    if (undoes && run_.state != RunState::reverting && !only_checks()) outcome = undoable_or_kept(*std::move(outcome));
    const auto& [event, reason] = *outcome;
    if ((event == Event::cancel || event == Event::revert) &&
        only_checks()) {  // nothing to undo; earlier runs may have
      TRY(move({Event::superseded, reason}));
      return event == Event::revert ? revert() : run_;
    }
    TRY(move(*outcome));
    TRY(after_end());
    const bool rolling_back = run_.state == RunState::reverting;
    if (event == Event::reboot_due &&
        TRY(s_.rebooter.reboot(plan_.policy.reboot, reason, rolling_back)) == Rebooter::Outcome::called_off &&
        run_.state == RunState::rebooting)
      TRY(move({Event::pause, "the restart was cancelled"}));
    if (run_.state != RunState::reverting || event == Event::reboot_due || event == Event::stopped) return run_;
  }
}

/// Makes the open choices; they are fixed for the rest of the run.
Result<void> Walk::choose() {
  choose_gpus(s_.host, plan_, s_.registry);
  plan_ = resolve(std::move(plan_), s_.registry, *s_.host.snapshot());
  std::string resolved = journal_text(plan_);
  if (resolved == run_.resolved) return {};
  run_.resolved = std::move(resolved);
  return save("chosen", "", "the resolved plan");
}

bool Walk::only_checks() const { return unread_ ? run_.plan == kVerify : plan_.only_checks(); }

/// True if this run has changed nothing so far.
bool Walk::is_untouched() const {
  return std::ranges::none_of(records_, [](const auto& known) { return known.second.applied; });
}

/// True if this run has proven P2P, on any boot.
bool Walk::was_proven() {
  const Step* goal = plan_.goal();
  if (goal == nullptr) return false;
  const std::string verdict = record(goal->id).finding.value("verdict", "");
  return verdict == to_string(Verdict::pass) || verdict == to_string(Verdict::limited);
}

/// True if this run has changes that are not permanent yet: until then only p2pd loads the new modules.
bool Walk::is_on_trial() const {
  return std::ranges::any_of(s_.undo.owners(), [&](const UndoStore::Owner& changed) {
    const Action* fix = s_.registry.action(changed.fix);
    const auto known = records_.find(changed.step);
    return changed.run == run_.id && fix != nullptr && fix->commit != nullptr &&
           (known == records_.end() || !known->second.committed);
  });
}

// ---- outcomes
// ---------------------------------------------------------------------------------------------------------

/// Pending request, which the walk handles before it continues.
std::optional<Walk::Outcome> Walk::asked_for() {
  const std::optional<Event> asked = s_.poll();
  if (!asked) return std::nullopt;
  return kept(*asked, *asked == Event::stopped ? "stopped between two steps, as requested" : "as asked");
}

/// Outcome with `reason`, or with the cause of the failure as long as its changes are undone, over reboots too.
Walk::Outcome Walk::kept(Event event, const std::string& reason) const {
  return {event, run_.rollback == Rollback::failed ? run_.reason : reason};
}

/// Fails the run; the plan decides between rollback and keep.
Walk::Outcome Walk::give_up(std::string reason) {
  if (run_.state == RunState::reverting || plan_.policy.on_failure == OnFailure::keep)
    return {Event::failure, std::move(reason)};
  run_.rollback = Rollback::failed;
  return {Event::give_back, std::move(reason)};
}

/// Waits some seconds; a request ends the wait.
Result<std::optional<Walk::Outcome>> Walk::wait_a_while(const std::string& why) {
  s_.observer.waiting(why);
  for (int second = 0; second < kSecondsBetweenLooks; ++second) {
    if (std::optional<Outcome> asked = asked_for()) return asked;
    s_.clock.wait(std::chrono::seconds(1));
  }
  return std::nullopt;
}

/// Changes the state of the run durably, together with the records of its steps.
Result<void> Walk::move(const Outcome& outcome) {
  const Event change = outcome.event;
  const std::optional<RunState> next = next_state(run_.state, change);
  if (!next)
    return fail(ErrorCode::state, fmt::format("a run that is {} cannot {}", to_string(run_.state), to_string(change)),
                run_.state == RunState::paused ? "\"sudo p2pctl resume\" continues it, \"sudo p2pctl cancel\" undoes it"
                : run_.state != RunState::reverting ? "\"p2pctl history --all\" shows every step"
                                                    : finish_command(run_) + "; then any request is possible");
  if (!is_open(*next) || *next == RunState::blocked) TRY(rest());
  run_.state = *next;
  run_.reason = outcome.reason;
  if (*next == RunState::paused && is_on_trial())
    run_.reason += fmt::format("{}it goes on at the next boot, because its changes are on trial until then",
                               run_.reason.empty() ? "" : "; ");
  if (change == Event::revert) run_.rollback = Rollback::all;
  if (!is_open(run_.state)) {
    run_.ended = iso_time(s_.clock.now());
    run_.result = change == Event::proven       ? "ready"
                  : change == Event::in_part    ? "limited"
                  : change == Event::settled    ? "done"
                  : change == Event::reverted   ? (run_.rollback == Rollback::all ? "reverted" : "cancelled")
                  : change == Event::superseded ? "superseded"
                                                : "failed";
  }
  // every change withdraws the ready file first
  if (change == Event::proven || change == Event::in_part) TRY_IN("ready file", announce(s_.host, *proof_));
  if (change == Event::blocker && !proof_ && TRY(proves_for_itself())) TRY_IN("ready file", withdraw_ready(s_.host));
  std::vector<StepRecord> known;
  for (const auto& [name, step] : records_) known.push_back(step);
  TRY(s_.journal.save(run_, known, in_place(), event(to_string(change), "", run_.reason)));
  run_.stays = TRY(s_.journal.stays(run_));
  s_.observer.run_changed(run_, plan_, records_);
  return {};
}

/// True if the findings of this run apply to the proven state: the proof is of the same plan.
Result<bool> Walk::proves_for_itself() const {
  const std::optional<Run> proven = TRY(s_.journal.newest_proven(kVerify));
  return run_.plan == kVerify || (proven && proven->plan == run_.plan);
}

/// Lets the fixes rest. Runs before the new state is recorded, so that a kill in between repeats it.
Result<void> Walk::rest() {
  for (const Action& act : s_.registry.actions) {
    if (act.run_rests == nullptr) continue;
    s_.undo.begin({});
    const Result<void> done = act.run_rests(s_.host);
    if (done) continue;
    if (done.error().code == ErrorCode::interrupted) return Failure(done.error());
    log::warning("{}: {}", act.id, done.error().text());
    TRY(save("warning", "", done.error().text()));
  }
  return {};
}

/// Runs the hooks after a run that has ended.
Result<void> Walk::after_end() {
  if (is_open(run_.state) || run_.plan == kEachBoot || run_.result == "superseded") return {};
  const bool well = is_proven(run_.state) || run_.result == "done";
  const std::string_view hooks = well ? kAfterReady : kOnFailure;
  return note_hooks(hooks, run_hooks(s_.host, hooks, run_));
}

/// Records that hooks ran, if there are any. One that failed or was skipped is a warning.
Result<void> Walk::note_hooks(std::string_view directory, const Result<bool>& ran) {
  if (!ran) return warn(ran.error());
  if (!*ran) return {};
  TRY(save("hooks", "", std::string(directory)));
  const Result<void> sound = check_hooks(s_.host, directory);
  return sound ? sound : warn(sound.error());
}

// ---- boots
// ------------------------------------------------------------------------------------------------------------

/// Records a boot that is new to the run. An unexpected boot counts as a crash.
Result<std::optional<Walk::Outcome>> Walk::note_boot() {
  if (TRY(s_.journal.knows_boot(run_.id, boot_))) return std::nullopt;
  const bool expected = !run_.reboot_from.empty();
  if (!expected) ++run_.reboots;
  run_.reboot_from.clear();
  // a boot in the middle of a revert starts without what is restored later, such as the driver
  run_.reboot_due = !expected && run_.state == RunState::reverting && undoable();
  for (const Intent& intent : TRY(s_.journal.open_intents(run_.id))) {
    const Step* step = plan_.step(intent.step);
    const bool live_hazard =
        intent.kind == Intent::Kind::hazard && step != nullptr && action(*step).effect == Effect::live;
    if (!live_hazard && intent.kind != Intent::Kind::proof) continue;
    StepRecord& known = record(intent.step);
    ++known.crashes;
    TRY(s_.journal.close_intent(intent.id, run_, known, event("crashed", intent.step, "")));
  }
  TRY(s_.journal.add_boot(run_, boot_, event(expected ? "boot" : "unexpected-boot", "", boot_)));
  if (run_.state == RunState::reverting || run_.reboots <= plan_.policy.reboots || was_proven()) return std::nullopt;
  return give_up(fmt::format("{} reboots, including crashes; the plan allows {}", run_.reboots, plan_.policy.reboots));
}

/// Transient reasons against a restart now; empty: none.
std::string Walk::in_use() const {
  std::string busy = s_.rebooter.in_the_way();
  for (const Step& step : plan_.steps) {
    if (step.kind != StepKind::requires_ || !s_.registry.probe(step.check)->transient) continue;
    const Finding finding = check(step);
    // an unknown result is not waited for: the wait might never end
    if (finding.verdict == Verdict::fail)
      busy += fmt::format("{}{}: {}", busy.empty() ? "" : "; ", step.id, finding.summary);
  }
  return busy;
}

/// Waits before a restart until the machine is idle, or returns a blocker. During a rollback the wait is bounded.
Result<std::optional<Walk::Outcome>> Walk::wait_until_idle() {
  if (plan_.policy.reboot == RebootPolicy::external) return std::nullopt;  // the operator checks that himself
  const bool back = run_.state == RunState::reverting;
  for (int waited = 0;; waited += kSecondsBetweenLooks) {
    const std::string busy = in_use();
    if (busy.empty()) return std::nullopt;
    if (back && waited >= kRollbackPatience) {
      TRY(save("not-idle", "", busy));
      return std::nullopt;
    }
    if (plan_.policy.busy == Busy::block && !back) return Outcome{Event::blocker, busy};
    std::optional<Outcome> asked = TRY(wait_a_while("a restart is due; " + busy));
    if (asked && (!back || asked->event == Event::stopped || asked->event == Event::revert)) return asked;
  }
}

/// Counts and prepares a reboot; the walk reboots once that is durable. One reboot is reserved for the rollback.
Result<Walk::Outcome> Walk::restart(const std::string& why) {
  const bool back = run_.state == RunState::reverting;
  const bool counted = run_.reboot_from == boot_;
  const int kept = !back && plan_.policy.on_failure == OnFailure::revert ? 1 : 0;
  const bool over = !counted && run_.reboots + 1 + kept > plan_.policy.reboots;
  if (over && back) return give_up(why + "; the plan allows no further reboot: reboot by hand to finish");
  if (over && !was_proven())
    return give_up(fmt::format("one more reboot is needed ({}), and the plan allows {}{}", why, plan_.policy.reboots,
                               kept ? ", including the one of a rollback" : ""));
  for (const Step& step : plan_.steps) {
    StepRecord& known = record(step.id);
    if (back || !known.applied || known.committed) continue;
    if (action(step).before_reboot != nullptr) {
      s_.undo.begin(owner(step));
      Result<void> armed = action(step).before_reboot(s_.host, step.with);
      if (armed) armed = s_.undo.note_result();
      if (!armed && armed.error().code == ErrorCode::interrupted) return Failure(armed.error());
      const std::string why_not = armed ? "" : fmt::format("{}: {}", step.id, armed.error().text());
      if (!armed) return was_proven() ? Outcome{Event::blocker, why_not} : give_up(why_not);
    }
    if (!counted && action(step).hazard && known.status == StepStatus::pending_reboot)
      TRY(s_.journal.open_intent(run_, {0, Intent::Kind::hazard, step.id, boot_}, event("trial", step.id, "")));
  }
  if (over)
    return Outcome{Event::blocker, why +
                                       "; P2P was proven in a trial boot of this run, but the plan allows no further "
                                       "reboot: restart this machine by hand"};
  if (!counted) ++run_.reboots;
  run_.reboot_from = boot_;
  return Outcome{Event::reboot_due, why};
}

// ---- checks and changes, with their records in the journal
// ------------------------------------------------------------

Finding Walk::check(const Step& step) const { return check(step, s_.host); }

Finding Walk::check(const Step& step, const Host& host) const {
  const Probe* probe = s_.registry.probe(step.check);
  if (probe == nullptr) return unknown({ErrorCode::not_found, "there is no check " + step.check, ""});
  s_.observer.checking(step);
  const Result<Finding> finding = probe->check(host, step.with);
  return finding ? *finding : unknown(finding.error());
}

/// Runs the proof with an intent, like a hazardous fix: it may hang or crash the machine.
Result<Finding> Walk::prove(const Step& step) {
  TRY(close_intents(record(step.id), "proving-again"));
  Finding finding;
  TRY(with_intent(Intent::Kind::proof, event("proving", step.id, step.title), [&](StepRecord&) -> Result<JournalEvent> {
    s_.observer.checking(step);
    const Result<Finding> found = s_.registry.probe(step.check)->check(s_.host, step.with);
    if (!found && found.error().code == ErrorCode::interrupted) return Failure(found.error());
    finding = found ? *found : unknown(found.error());
    return event("proof", step.id, finding.summary);
  }));
  return finding;
}

/// Runs an operation on the step of `begun` between two journal entries; it returns the second one. An Error leaves the
/// intent open, as a kill does.
Result<void> Walk::with_intent(Intent::Kind kind, const JournalEvent& begun, const Ended& operation) {
  const std::int64_t intent = TRY(s_.journal.open_intent(run_, {0, kind, begun.step, boot_}, begun));
  StepRecord& known = record(begun.step);
  const JournalEvent ended = TRY(operation(known));
  return s_.journal.close_intent(intent, run_, known, ended);
}

/// Runs a part of a fix, and makes its changes durable before the journal records them. Returns the reason why it
/// failed; an Error if it was interrupted.
Result<std::optional<Error>> Walk::changed_by(Result<void> (*part)(Host&, const Parameters&), const Parameters& with) {
  Result<void> done = part(s_.host, with);
  if (done) done = s_.host.files().make_durable();
  if (done) done = s_.undo.note_result();
  if (done) return std::nullopt;
  if (done.error().code == ErrorCode::interrupted) return Failure(done.error());
  return done.error();
}

/// Closes the open intents of a step after its check. An interrupted fix counts as applied.
Result<void> Walk::close_intents(StepRecord& known, std::string_view outcome) {
  for (const Intent& intent : TRY(s_.journal.open_intents(run_.id))) {
    if (intent.step != known.step) continue;
    known.applied |= intent.kind == Intent::Kind::fix || intent.kind == Intent::Kind::hazard;
    TRY(s_.journal.close_intent(intent.id, run_, known, event(outcome, known.step, "")));
  }
  return {};
}

StepRecord& Walk::record(const std::string& step) {
  StepRecord& known = records_[step];
  known.step = step;
  return known;
}

/// True if this run has changed something for a step.
bool Walk::is_changed(const std::string& step) const {
  const auto known = records_.find(step);
  return known != records_.end() && known->second.applied;
}

/// Owner of changes for a step. A fix that is repeated at each boot keeps the run that applied it first.
UndoStore::Owner Walk::owner(const Step& step) const {
  const UndoStore::Owner own{run_.id, step.id, step.check, step.fix, step.with};
  return run_.plan == kEachBoot ? s_.undo.newest_for(step.id).value_or(own) : own;
}

ChangedSteps Walk::in_place() const {
  ChangedSteps changed;
  for (const UndoStore::Owner& owner : s_.undo.owners()) changed.emplace_back(owner.run, owner.step);
  return changed;
}

JournalEvent Walk::event(std::string_view type, std::string_view step, std::string text) const {
  return {iso_time(s_.clock.now()), boot_, run_.id, std::string(step), std::string(type), std::move(text)};
}

/// Saves the run with an event.
Result<void> Walk::save(std::string_view type, std::string_view step, std::string text) {
  return s_.journal.save(run_, event(type, step, std::move(text)));
}

/// Records a failure that does not end the run.
Result<void> Walk::warn(const Error& error) {
  log::warning("{}", error.text());
  return save("warning", "", error.text());
}

}  // namespace p2pd
