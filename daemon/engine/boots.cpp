// SPDX-License-Identifier: MIT
// The boots of a walk: which were asked for, how many there may be, and what is prepared before each.
#include <fmt/format.h>

#include "engine/walk.hpp"

namespace p2pd {

/// Journals a boot that is new to the run. One that nobody asked for counts as a crash.
Result<std::optional<Event>> Walk::note_boot() {
  if (TRY(s_.journal.knows_boot(run_.id, boot_))) return std::nullopt;
  const bool expected = !run_.reboot_from.empty();
  if (!expected) ++run_.reboots;
  run_.reboot_from.clear();
  run_.reboot_due = false;
  for (const Intent& intent : TRY(s_.journal.open_intents(run_.id))) {
    const Step* step = plan_.step(intent.step);
    const bool live_hazard = intent.kind == Intent::Kind::hazard && step != nullptr &&
                             action(*step).effect == Effect::live;
    if (!live_hazard && intent.kind != Intent::Kind::proof) continue;
    StepRecord& known = record(intent.step);
    ++known.crashes;
    TRY(s_.journal.close_intent(intent.id, run_, known, event("crashed", intent.step, "")));
  }
  TRY(s_.journal.add_boot(run_, boot_, event(expected ? "boot" : "unexpected-boot", "", boot_)));
  if (run_.state == RunState::reverting || run_.reboots <= plan_.policy.reboots) return std::nullopt;
  return give_up(fmt::format("{} reboots, crashes among them; the plan allows {}", run_.reboots, plan_.policy.reboots));
}

/// Counts a reboot and prepares it; the walk makes it once that is durable. One is kept for the way back.
Result<Event> Walk::restart() {
  const bool back = run_.state == RunState::reverting;
  const bool counted = run_.reboot_from == boot_;
  const int kept = !back && plan_.policy.on_failure == OnFailure::revert ? 1 : 0;
  if (!counted && run_.reboots + 1 + kept > plan_.policy.reboots) {
    if (back) return give_up(reason_ + "; the plan allows no further reboot: reboot by hand to finish");
    return give_up(fmt::format("one more reboot is needed ({}), and the plan allows {}{}", reason_,
                               plan_.policy.reboots, kept ? ", the way back included" : ""));
  }
  for (const Step& step : plan_.steps) {
    StepRecord& known = record(step.id);
    if (back || !known.applied || known.committed) continue;
    if (action(step).before_reboot != nullptr) {
      s_.undo.begin(owner(step));
      Result<void> armed = action(step).before_reboot(s_.host, step.with);
      if (armed) armed = s_.undo.note_result();
      if (!armed && armed.error().code == ErrorCode::interrupted) return Failure(armed.error());
      if (!armed) return give_up(fmt::format("{}: {}", step.id, armed.error().text()));
    }
    if (!counted && action(step).hazard && known.status == StepStatus::pending_reboot)
      TRY(s_.journal.open_intent(run_, {0, Intent::Kind::hazard, step.id, boot_}, event("trial", step.id, "")));
  }
  if (!counted) ++run_.reboots;
  run_.reboot_from = boot_;
  return Event::reboot_due;
}

}  // namespace p2pd
