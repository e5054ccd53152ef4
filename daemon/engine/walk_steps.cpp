// SPDX-License-Identifier: MIT
// Parts of a walk that its passes share: requests, checks, the proof, the journal and the state of the run.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/status.hpp"
#include "engine/walk.hpp"
#include "machine/driver/ready.hpp"

namespace p2pd {

/// Pending request, which the walk handles before it continues.
std::optional<Walk::Outcome> Walk::asked_for() {
  const std::optional<Event> asked = s_.requests.poll();
  if (!asked) return std::nullopt;
  return kept(*asked, *asked == Event::stopped ? "stopped between two steps, as requested" : "as asked");
}

/// Outcome with `reason`, or with the cause of the failure as long as its changes are undone, over reboots too.
Walk::Outcome Walk::kept(Event event, std::string reason) const {
  if (run_.rollback == Rollback::failed) return {event, run_.reason};
  return {event, std::move(reason)};
}

Finding Walk::check(const Step& step) const { return check(step, s_.host); }

Finding Walk::check(const Step& step, const Host& host) const {
  const Probe* probe = s_.registry.probe(step.check);
  if (probe == nullptr) return unknown({ErrorCode::not_found, "there is no check " + step.check, ""});
  s_.observer.checking(step);
  const Result<Finding> finding = probe->check(host, step.with);
  return finding ? *finding : unknown(finding.error());
}

/// Runs an operation on a step between two journal entries; it returns the second one. An Error leaves the intent open,
/// as a kill does.
Result<void> Walk::with_intent(Intent::Kind kind, const std::string& step, const JournalEvent& begun,
                               const Ended& operation) {
  const std::int64_t intent = TRY(s_.journal.open_intent(run_, {0, kind, step, boot_}, begun));
  StepRecord& known = record(step);
  const JournalEvent ended = TRY(operation(known));
  return s_.journal.close_intent(intent, run_, known, ended);
}

/// Runs the proof with an intent, like a hazardous fix: it may hang or crash the machine.
Result<Finding> Walk::prove(const Step& step) {
  TRY(close_intents(record(step.id), "proving-again"));
  Finding finding;
  TRY(with_intent(Intent::Kind::proof, step.id, event("proving", step.id, step.title),
                  [&](StepRecord&) -> Result<JournalEvent> {
                    s_.observer.checking(step);
                    const Result<Finding> found = s_.registry.probe(step.check)->check(s_.host, step.with);
                    if (!found && found.error().code == ErrorCode::interrupted) return Failure(found.error());
                    finding = found ? *found : unknown(found.error());
                    return event("proof", step.id, finding.summary);
                  }));
  return finding;
}

/// True if this run has changed something for a step.
bool Walk::is_changed(const std::string& step) const {
  const auto known = records_.find(step);
  return known != records_.end() && known->second.applied;
}

StepRecord& Walk::record(const std::string& step) {
  StepRecord& known = records_[step];
  known.step = step;
  return known;
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

/// Changes the state of the run durably, together with the records of its steps.
Result<void> Walk::move(const Outcome& outcome) {
  const Event change = outcome.event;
  const std::optional<RunState> next = next_state(run_.state, change);
  if (!next)
    return fail(ErrorCode::state, fmt::format("a run that is {} cannot {}", to_string(run_.state), to_string(change)),
                run_.state == RunState::paused      ? "\"p2pctl resume\" continues it, \"p2pctl cancel\" undoes it"
                : run_.state != RunState::reverting ? "\"p2pctl history\" shows every step"
                                                    : finish_command(run_) + "; then any request is possible");
  if (!is_open(*next) || *next == RunState::blocked) TRY(rest());
  run_.state = *next;
  run_.reason = outcome.reason;
  if (*next == RunState::paused && is_on_trial())
    run_.reason += fmt::format("{}it goes on at the next boot, because its changes are on trial until then",
                               run_.reason.empty() ? "" : "; ");
  if (change == Event::revert) run_.rollback = Rollback::all;
  if (!is_open(run_.state)) {
    run_.ended = event("", "", "").time;
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

Result<void> Walk::abandon(const std::string& why) {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (!last || !is_open(last->state)) return {};
  run_ = *last;  // without its plan, which an older p2pd may have written
  return move({Event::abandoned, why});
}

JournalEvent Walk::event(std::string_view type, std::string_view step, std::string text) const {
  return {iso_time(s_.clock.now()), boot_, run_.id, std::string(step), std::string(type), std::move(text)};
}

/// True if the findings of this run apply to the proven state: the proof is of the same plan.
Result<bool> Walk::proves_for_itself() const {
  const std::optional<Run> proven = TRY(s_.journal.newest_proven(kVerify));
  return run_.plan == kVerify || (proven && proven->plan == run_.plan);
}

ChangedSteps Walk::in_place() const {
  ChangedSteps changed;
  for (const UndoStore::Owner& owner : s_.undo.owners()) changed.emplace_back(owner.run, owner.step);
  return changed;
}

/// Owner of changes for a step. A fix that is repeated at each boot keeps the run that applied it first.
UndoStore::Owner Walk::owner(const Step& step) const {
  const UndoStore::Owner own{run_.id, step.id, step.check, step.fix, step.with};
  return run_.plan == kEachBoot ? s_.undo.newest_for(step.id).value_or(own) : own;
}

}  // namespace p2pd
