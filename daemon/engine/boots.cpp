// SPDX-License-Identifier: MIT
// Boots of a walk: expected boots, limit of reboots, preparation of each reboot.
#include <fmt/format.h>

#include <algorithm>

#include "engine/walk.hpp"

namespace p2pd {

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

/// Waits some seconds; a request ends the wait.
Result<std::optional<Walk::Outcome>> Walk::wait_a_while(const std::string& why) {
  s_.observer.waiting(why);
  for (int second = 0; second < kSecondsBetweenLooks; ++second) {
    if (std::optional<Outcome> asked = asked_for()) return asked;
    s_.clock.wait(std::chrono::seconds(1));
  }
  return std::nullopt;
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
      TRY(s_.journal.save(run_, event("not-idle", "", busy)));
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

}  // namespace p2pd
