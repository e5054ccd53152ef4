// SPDX-License-Identifier: MIT
// Rollback of a run: its changes are undone, newest first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "base/log.hpp"
#include "engine/hooks.hpp"
#include "engine/walk.hpp"
#include "machine/driver/ready.hpp"

namespace p2pd {

/// Owner of the newest change that this run may undo: one of its own, unless it undoes all runs.
std::optional<UndoStore::Owner> Walk::undoable() const {
  std::optional<UndoStore::Owner> newest = s_.undo.newest();
  if (newest && run_.rollback != Rollback::all && newest->run != run_.id) newest.reset();
  return newest;
}

/// Checks that this run, or all runs, can be undone completely, before anything is. ErrorCode::busy: not now.
Result<void> Walk::prepare_rollback(bool all) {
  TRY(s_.undo.check(all ? 0 : run_.id));
  std::vector<UndoStore::Owner> owners = s_.undo.owners();
  std::ranges::reverse(owners);
  std::optional<Error> busy;
  for (const UndoStore::Owner& changed : owners) {
    if (!all && changed.run != run_.id) continue;
    const Action& act = TRY(fix_of(changed));
    if (act.prepare_undo == nullptr) continue;
    s_.undo.begin_undo(changed);
    const Result<void> ready = act.prepare_undo(s_.host, changed.with);
    if (!ready && ready.error().code != ErrorCode::busy) return Failure(Error(ready.error()).in(changed.step));
    if (!ready && !busy) busy = Error(ready.error()).in(changed.step);
    if (busy && run_.state == RunState::reverting) break;  // it is checked again
  }
  if (busy) return Failure(*busy);
  return {};
}

/// Refuses an undo that could not be completed: nothing is changed. What is busy now is waited for later, and so is the
/// rest of a check that a stop interrupted: the request is not lost.
Result<void> Walk::require_rollback(bool all) {
  const Result<void> ready = prepare_rollback(all);
  if (ready || ready.error().code == ErrorCode::busy || ready.error().code == ErrorCode::interrupted) return {};
  return Failure(Error(ready.error()).in("nothing is undone, because not everything could be"));
}

/// Does the same for a run that no walk is working on. A walk that the request interrupted does not continue by itself.
Result<void> Walk::require_rollback_at_rest(bool all) {
  Result<void> ready = require_rollback(all);
  if (!ready && run_.state == RunState::walking && !only_checks()) TRY(move({Event::blocker, ready.error().text()}));
  return ready;
}

/// Outcome that begins a rollback. If that could not be completed, one that keeps all changes. A run with changes on
/// trial then stays open: at each boot only p2pd loads the modules.
Walk::Outcome Walk::undoable_or_kept(Outcome outcome) {
  const Result<void> ready = require_rollback(outcome.event == Event::revert);
  if (ready) return outcome;
  if (outcome.event != Event::give_back) return {Event::blocker, ready.error().text()};
  run_.rollback = Rollback::own;
  const bool stays_open = is_on_trial();
  if (stays_open)
    for (auto& [name, known] : records_) known.attempts = 0;
  return {stays_open ? Event::blocker : Event::failure, outcome.reason + "; " + ready.error().text()};
}

/// Handles a request during a rollback; returns one to stop. A revert undoes all runs from now on, if that can be
/// completed.
Result<std::optional<Walk::Outcome>> Walk::heard_in_rollback(const std::optional<Outcome>& asked) {
  if (asked && asked->event == Event::revert) {
    const Result<void> ready = require_rollback(true);
    if (ready)
      TRY(move(*asked));
    else
      TRY(warn(ready.error()));
  }
  return asked && asked->event == Event::stopped ? asked : std::nullopt;
}

/// Runs the hooks before the first undo of a revert. The wait for them is as long as for users of the machine.
Result<std::optional<Walk::Outcome>> Walk::before_revert() {
  const bool begun =
      std::ranges::any_of(records_, [](const auto& known) { return known.second.status == StepStatus::reverted; });
  if (run_.rollback != Rollback::all || begun) return std::nullopt;
  for (int waited = 0;; waited += kSecondsBetweenLooks) {
    const Result<bool> ran = run_hooks(s_.host, kBeforeChange, run_);
    if (ran || waited >= kRollbackPatience) {
      TRY(note_hooks(kBeforeChange, ran));
      return std::nullopt;
    }
    const std::optional<Outcome> asked = TRY(wait_a_while(ran.error().text()));
    if (asked && asked->event == Event::stopped) return asked;
  }
}

/// Waits until the rest of this rollback can be undone completely; an Error if it never can. Returns a request to stop.
Result<std::optional<Walk::Outcome>> Walk::wait_for_rollback() {
  for (;;) {
    if (const std::optional<Outcome> stopped = TRY(heard_in_rollback(asked_for()))) return stopped;
    const Result<void> ready = prepare_rollback(run_.rollback == Rollback::all);
    if (ready) return std::nullopt;
    if (ready.error().code != ErrorCode::busy) return Failure(ready.error());
    const std::optional<Outcome> asked = TRY(wait_a_while(ready.error().text()));
    if (const std::optional<Outcome> stopped = TRY(heard_in_rollback(asked))) return stopped;
  }
}

/// Undoes the changes of this run, or of all runs, newest first.
Result<Walk::Outcome> Walk::roll_back() {
  if (const std::optional<Outcome> stopped = TRY(before_revert())) return *stopped;
  if (const std::optional<Outcome> stopped = TRY(wait_for_rollback())) return *stopped;
  for (;;) {
    if (const std::optional<Outcome> stopped = TRY(heard_in_rollback(asked_for()))) return *stopped;
    const std::optional<UndoStore::Owner> changed = undoable();
    if (!changed) break;
    Result<void> undone = undo(*changed);
    if (!undone && undone.error().code == ErrorCode::busy) {  // a lock that was taken since
      const std::optional<Outcome> asked = TRY(wait_a_while(undone.error().text()));
      if (const std::optional<Outcome> stopped = TRY(heard_in_rollback(asked))) return *stopped;
      continue;
    }
    TRY_IN("undo of " + changed->step, std::move(undone));
  }
  if (run_.reboot_due) return kept(Event::reboot_due, "the undone settings are in effect until the next boot");
  TRY(prove_earlier());
  if (run_.rollback == Rollback::failed) return kept(Event::given_back, "");
  return Outcome{Event::reverted, run_.rollback == Rollback::all ? "all changes of p2pd are undone"
                                                                 : "all changes of this run are undone"};
}

Result<void> Walk::undo(const UndoStore::Owner& changed) {
  const Action& act = TRY(fix_of(changed));
  s_.observer.undoing(changed.step);
  TRY_IN("ready file", withdraw_ready(s_.host));  // the proven state is about to change
  TRY(with_intent(Intent::Kind::undo, event("undoing", changed.step, ""),
                  [&](StepRecord& known) -> Result<JournalEvent> {
                    const std::string notes = fmt::format("{}", fmt::join(TRY(s_.undo.restore_newest()), "; "));
                    s_.undo.begin_undo(changed);
                    if (act.undo != nullptr) TRY(act.undo(s_.host, changed.with));
                    TRY(s_.host.files().make_durable());
                    if (act.effect == Effect::reboot) {
                      Step step;
                      step.check = changed.check;
                      step.with = changed.with;
                      run_.reboot_due |= check(step).verdict == Verdict::pass;
                    }
                    known = {.step = changed.step, .status = StepStatus::reverted};
                    if (!notes.empty()) known.finding["summary"] = notes;
                    return event("undone", changed.step, notes);
                  }));
  return s_.undo.forget_newest();
}

/// Fix that made a change. Without it a part of the change would stay.
Result<std::reference_wrapper<const Action>> Walk::fix_of(const UndoStore::Owner& changed) const {
  if (const Action* known = s_.registry.action(changed.fix)) return std::cref(*known);
  return fail(ErrorCode::not_found,
              fmt::format("{} was changed by the fix \"{}\" of p2pd {}, which p2pd {} does not know", changed.step,
                          changed.fix, changed.made_by.empty() ? "0.2 or older" : changed.made_by, P2PD_VERSION),
              "Install that version of p2pd, or a newer one");
}

}  // namespace p2pd
