// SPDX-License-Identifier: MIT
// The way back of a walk: what was changed is undone, newest first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/walk.hpp"

namespace p2pd {

/// Undoes every recorded change, newest first.
Result<Event> Walk::unwind() {
  while (const std::optional<UndoStore::Owner> changed = s_.undo.newest()) {
    if (s_.requests.poll() == Event::stopped) {
      if (!run_.failing) reason_ = "stopped between two steps, as asked";
      return Event::stopped;
    }
    TRY_IN("undo of " + changed->step, undo(*changed));
  }
  if (run_.reboot_due) {
    if (!run_.failing) reason_ = "what was undone is in effect until the next boot";
    return Event::reboot_due;
  }
  if (!run_.failing) reason_ = "everything p2pd changed is undone";
  return run_.failing ? Event::given_back : Event::reverted;
}

Result<void> Walk::undo(const UndoStore::Owner& changed) {
  const Action* act = s_.vocabulary.action(changed.fix);
  s_.observer.undoing(changed.step);
  const std::int64_t intent =
      TRY(s_.journal.open_intent(run_, {0, Intent::Kind::undo, changed.step, boot_}, event("undoing", changed.step, "")));
  const std::vector<std::string> notes = TRY(s_.undo.restore_newest());
  s_.undo.begin({});
  if (act != nullptr && act->undo != nullptr) TRY(act->undo(s_.host, changed.with));
  TRY(s_.host.files().make_durable());
  if (act != nullptr && act->effect == Effect::reboot) {
    Step step;
    step.check = changed.check;
    step.with = changed.with;
    run_.reboot_due |= check(step).verdict == Verdict::pass;
  }
  StepRecord undone;
  undone.step = changed.step;
  undone.status = StepStatus::reverted;
  records_[changed.step] = undone;
  TRY(s_.journal.close_intent(intent, run_, undone,
                              event("undone", changed.step, fmt::format("{}", fmt::join(notes, "; ")))));
  return s_.undo.forget_newest();
}

/// The run fails for `reason_`; what follows is the plan's choice.
Event Walk::give_up(std::string reason) {
  reason_ = std::move(reason);
  if (run_.state == RunState::reverting || plan_.policy.on_failure == OnFailure::keep) return Event::failure;
  run_.failing = true;
  return Event::give_back;
}

}  // namespace p2pd
