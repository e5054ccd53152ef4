// SPDX-License-Identifier: MIT
// Rollback of a run: its changes are undone, newest first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/ready.hpp"
#include "engine/walk.hpp"

namespace p2pd {

/// Owner of the newest change that this run may undo: one of its own, unless it undoes all runs.
std::optional<UndoStore::Owner> Walk::undoable() const {
  std::optional<UndoStore::Owner> newest = s_.undo.newest();
  if (newest && run_.rollback != Rollback::all && newest->run != run_.id) newest.reset();
  return newest;
}

/// Undoes the changes of this run, or of all runs, newest first.
Result<Walk::Outcome> Walk::roll_back() {
  if (const std::optional<Outcome> stopped = TRY(before_revert())) return *stopped;
  for (;;) {
    const std::optional<Outcome> asked = asked_for();
    if (asked && asked->event == Event::revert) TRY(move(*asked));
    if (asked && asked->event == Event::stopped) return *asked;
    const std::optional<UndoStore::Owner> changed = undoable();
    if (!changed) break;
    TRY_IN("undo of " + changed->step, undo(*changed));
  }
  if (run_.reboot_due) return kept(Event::reboot_due, "the undone settings are in effect until the next boot");
  TRY(prove_earlier());
  if (run_.rollback == Rollback::failed) return kept(Event::given_back, "");
  return Outcome{Event::reverted, run_.rollback == Rollback::all ? "all changes of p2pd are undone"
                                                                 : "all changes of this run are undone"};
}

Result<void> Walk::undo(const UndoStore::Owner& changed) {
  const Action* act = s_.registry.action(changed.fix);
  s_.observer.undoing(changed.step);
  TRY_IN("ready file", withdraw_ready(s_.host));  // the proven state is about to change
  TRY(with_intent(Intent::Kind::undo, changed.step, event("undoing", changed.step, ""),
                  [&](StepRecord& known) -> Result<JournalEvent> {
                    const std::vector<std::string> notes = TRY(s_.undo.restore_newest());
                    s_.undo.begin_undo(changed);
                    if (act != nullptr && act->undo != nullptr) TRY(act->undo(s_.host, changed.with));
                    TRY(s_.host.files().make_durable());
                    if (act != nullptr && act->effect == Effect::reboot) {
                      Step step;
                      step.check = changed.check;
                      step.with = changed.with;
                      run_.reboot_due |= check(step).verdict == Verdict::pass;
                    }
                    known = StepRecord();
                    known.step = changed.step;
                    known.status = StepStatus::reverted;
                    if (!notes.empty()) known.finding["summary"] = fmt::format("{}", fmt::join(notes, "; "));
                    return event("undone", changed.step, fmt::format("{}", fmt::join(notes, "; ")));
                  }));
  return s_.undo.forget_newest();
}

/// Fails the run; the plan decides between rollback and keep.
Walk::Outcome Walk::give_up(std::string reason) {
  if (run_.state == RunState::reverting || plan_.policy.on_failure == OnFailure::keep)
    return {Event::failure, std::move(reason)};
  run_.rollback = Rollback::failed;
  return {Event::give_back, std::move(reason)};
}

}  // namespace p2pd
