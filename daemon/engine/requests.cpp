// SPDX-License-Identifier: MIT
// Requests to a walk: begin, continue, cancel, revert, check again at each boot, end.
#include <fmt/format.h>

#include <algorithm>

#include "base/json_members.hpp"
#include "engine/walk.hpp"
#include "plan/assess.hpp"
#include "plan/journalled_plan.hpp"
#include "plan/resolve.hpp"

namespace p2pd {
namespace {

Result<Proof> proof_of(const Journal& journal, const Run& run) {
  Proof proof{.limited = run.result == "limited", .fit_for = {}};
  for (const StepRecord& step : TRY(journal.steps(run.id)))
    for (std::string& use : json_texts(step.finding, "fit_for")) proof.fit_for.push_back(std::move(use));
  return proof;
}

}  // namespace

Result<Run> Walk::apply(const Plan& plan) {
  const bool open = TRY(load_last());
  if (!open || only_checks()) {
    if (open) TRY(move(Event::superseded));
    TRY(begin(plan, RunState::walking));
    return walk();
  }
  if (run_.plan != plan.name)
    return fail(ErrorCode::state, fmt::format("run {} of plan {} is {}", run_.id, run_.plan, to_string(run_.state)),
                fmt::format("\"sudo p2pctl apply {}\" continues it, \"sudo p2pctl cancel\" undoes it", run_.plan));
  if (plan.policy.reboot == RebootPolicy::external) plan_.policy.reboot = RebootPolicy::external;  // saved by walk()
  if (unread_ && run_.state != RunState::reverting) return Failure(*unread_);
  // finishes the rollback of a run that failed or was cancelled: `revert` would undo earlier runs, too
  const bool rolls_back = run_.state == RunState::reverting && run_.rollback != Rollback::all;
  TRY(move(rolls_back ? Event::go_on : Event::apply));
  return walk();
}

Result<Run> Walk::go_on() {
  if (!TRY(load_last())) return run_;
  const bool new_boot = !TRY(s_.journal.knows_boot(run_.id, boot_));
  if (run_.state == RunState::paused) {
    if (!new_boot || !is_on_trial()) return run_;
    TRY(move(Event::resume));
    return walk();
  }
  if (only_checks() && run_.state != RunState::reverting) return run_;  // another boot begins a new run
  if (run_.state == RunState::blocked && !new_boot) return run_;        // the operator must act
  TRY(move(Event::go_on));
  return walk();
}

Result<Run> Walk::prove_again() {
  const bool open = TRY(load_last());
  if (open && !only_checks()) return run_;  // the open run proves P2P itself
  const std::optional<Run> proven = TRY(standing_proof(0));
  if (!proven) return run_;
  if (open) TRY(move(Event::superseded));
  TRY(load(*proven));
  before_ = TRY(proof_of(s_.journal, *proven));
  if (unread_ && plan_.goal() == nullptr) return Failure(*unread_);
  Plan checks = checks_of(std::move(plan_), s_.registry, true);
  checks.name = kVerify;
  checks.gpus.alone = checks.gpus.alone.value_or(std::map<std::string, std::string>());  // what is proven stays
  checks.policy = {.reboots = 0, .on_failure = OnFailure::keep, .busy = Busy::wait};
  TRY(begin(checks, RunState::walking));
  return walk();
}

/// Newest run that proved P2P on this machine; nothing if a later run, except `besides`, changed the machine, or undid
/// all changes.
Result<std::optional<Run>> Walk::standing_proof(std::int64_t besides) const {
  std::optional<Run> proven = TRY(s_.journal.newest_proven());
  for (const Run& changed : TRY(s_.journal.runs_in_place()))
    if (proven && changed.id > proven->id && changed.id != besides && changed.plan != kVerify &&
        changed.plan != kEachBoot)
      proven.reset();
  if (!proven_on_this_machine(s_.host)) proven.reset();
  return proven;
}

/// Reduces an earlier proof by the finding of a quick one, which never adds anything.
Proof Walk::what_stands(Proof before, const Finding& finding) {
  if (before.fit_for.empty()) before.fit_for = finding.fit_for;  // the proof is of a version without this field
  std::erase_if(before.fit_for, [&](const std::string& use) { return std::ranges::count(finding.unfit_for, use) > 0; });
  before.limited |= finding.verdict == Verdict::limited;
  before.summary = finding.summary;
  return before;
}

/// Repeats, in the quick form, the proof of an earlier run after the rollback of a run. A proof that crashed the
/// machine in this run is left to the next boot.
Result<void> Walk::prove_earlier() {
  if (run_.rollback == Rollback::all || s_.host.files().exists(ready_file())) return {};
  const std::optional<Run> proven = TRY(standing_proof(run_.id));
  if (!proven) return {};
  Plan checks = checks_of(read_journalled_plan(proven->resolved, proven->plan, s_.registry).plan, s_.registry, true);
  const Step* goal = checks.goal();
  choose_gpus(s_.host, checks, s_.registry);  // the run ends with this
  const Assessment seen = assess(checks, s_.registry, [&](const Step& step) { return check(step); });
  if (goal == nullptr || seen.goal()->kind != Standing::Kind::untried || record(goal->id).crashes > 0) return {};
  const Finding finding = TRY(prove(*goal));
  if (!finding.proves()) return {};
  TRY_IN("ready file", announce(s_.host, what_stands(TRY(proof_of(s_.journal, *proven)), finding)));
  return save("proven-again", "", fmt::format("the proof of run {} of plan {}", proven->id, proven->plan));
}

Result<Run> Walk::reassert() {
  if (TRY(load_last()) && !only_checks()) return run_;  // the open run handles all steps
  const Run last = run_;
  Plan again{.name = std::string(kEachBoot),
             .title = "settings that last for one boot",
             .policy = {.reboots = 0, .on_failure = OnFailure::keep},
             .steps = {}};
  for (const Run& run : TRY(s_.journal.runs_in_place())) {
    if (run.plan == kEachBoot || (run.result != "ready" && run.result != "limited" && run.result != "done")) continue;
    TRY(load(run));
    again.gpus = plan_.gpus;
    for (Step& step : each_boot_of(std::move(plan_), s_.registry).steps)
      if (record(step.id).applied && again.step(step.id) == nullptr) again.steps.push_back(std::move(step));
  }
  if (again.steps.empty()) return last;
  if (TRY(load_last())) TRY(move(Event::superseded));
  TRY(begin(again, RunState::walking));
  return walk();
}

Result<Run> Walk::add_kernel() {
  if (TRY(load_last()) && !only_checks())
    return fail(ErrorCode::busy, fmt::format("run {} of plan {} is {}", run_.id, run_.plan, to_string(run_.state)));
  const Run last = run_;
  for (const Run& run : TRY(s_.journal.runs_in_place())) {
    TRY(load(run));
    std::vector<const Step*> steps;
    for (const Step& step : plan_.steps)
      if (!step.fix.empty() && action(step).new_kernel != nullptr && record(step.id).applied) steps.push_back(&step);
    if (steps.empty()) continue;
    if (check(*steps.back()).holds()) return run_;  // the files that the other steps stage are already there
    for (const Step* step : steps) {
      s_.undo.begin(owner(*step));
      if (std::optional<Error> error = TRY_IN(step->id, changed_by(action(*step).new_kernel, step->with)))
        return Failure((*std::move(error)).in(step->id));
    }
    TRY(save("kernel-added", "", ""));
    return run_;
  }
  return last;
}

Result<Run> Walk::revert() {
  const bool open = TRY(load_last());
  if (s_.undo.newest()) TRY(require_rollback_at_rest(true));
  if (open) {
    TRY(move(only_checks() && run_.state != RunState::reverting ? Event::superseded : Event::revert));
    if (is_open(run_.state)) return walk();
  }
  if (!s_.undo.newest()) return run_;
  if (!open) plan_ = {};
  for (const Run& changed : TRY(s_.journal.runs_in_place()))
    if (changed.plan != kEachBoot) {
      TRY(load(changed));
      break;
    }
  TRY(begin(plan_, RunState::reverting));
  return walk();
}

Result<Run> Walk::cancel_accepted() {
  const bool open = TRY(load_last());
  if (open && run_.state != RunState::reverting) return request(Event::cancel);
  if (open || std::ranges::count(run_.stays, run_.id, &RunChanges::run) == 0) return run_;
  TRY(require_rollback_at_rest(false));
  run_.state = RunState::walking;  // the state when the cancel was accepted
  run_.rollback = Rollback::own;
  run_.result = run_.ended = "";
  TRY(move(Event::cancel));
  return walk();
}

Result<Run> Walk::request(Event event) {
  const bool open = TRY(load_last());
  if (run_.id == 0) return fail(ErrorCode::state, fmt::format("there is no run to {}", to_string(event)));
  if (!open && event == Event::retry) {
    if (!next_state(run_.state, event)) return fail(ErrorCode::state, "the last run did not fail");
    if (unread_) return Failure(*unread_);
    Plan anew = plan_;
    for (Step& step : anew.steps) step.reset_trial();
    anew.gpus.alone.reset();
    TRY(begin(anew, RunState::walking));
  } else {
    const bool looks = open && run_.state != RunState::reverting && only_checks();
    if (unread_ && next_state(run_.state, event) == RunState::walking) return Failure(*unread_);
    if (event == Event::cancel && next_state(run_.state, event)) TRY(require_rollback_at_rest(false));
    TRY(move(event == Event::cancel && looks ? Event::superseded : event));
  }
  if (run_.state == RunState::walking || run_.state == RunState::reverting) return walk();
  return run_;
}

Result<void> Walk::abandon(const std::string& why) {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (!last || !is_open(last->state)) return {};
  run_ = *last;  // without its plan, which an older p2pd may have written
  return move({Event::abandoned, why});
}

/// Loads the last run, if there is one. True if it is open.
Result<bool> Walk::load_last() {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (last)
    TRY(load(*last));
  else
    run_ = {};
  return is_open(run_.state);
}

Result<void> Walk::load(const Run& run) {
  run_ = run;
  JournalledPlan read = read_journalled_plan(run.resolved, run.plan, s_.registry);
  plan_ = std::move(read.plan);
  unread_.reset();
  if (read.unread)
    unread_ = (*std::move(read.unread)).in(fmt::format("run {} of plan {} cannot be continued", run.id, run.plan));
  take_gpus(s_.host, plan_);
  records_.clear();
  for (StepRecord& step : TRY(s_.journal.steps(run.id))) records_[step.step] = step;
  return {};
}

Result<void> Walk::begin(const Plan& plan, RunState state) {
  plan_ = plan;
  unread_.reset();
  take_gpus(s_.host, plan_);
  records_.clear();
  Run run;
  run.plan = plan.name;
  run.resolved = journal_text(plan);
  // a plan that cannot be read back after a reboot must not begin
  if (auto unread = read_journalled_plan(run.resolved, plan.name, s_.registry).unread)
    return Failure(*std::move(unread));
  run.state = state;
  run.started = iso_time(s_.clock.now());
  run.reboot_from = "-";  // the first boot of a run is not a crash
  if (state == RunState::reverting) run.rollback = Rollback::all;
  const ChangedSteps changed = in_place();
  for (const auto& [id, step] : changed) run.id = std::max(run.id, id);  // the journal of those runs may be lost
  run_ = TRY(s_.journal.begin_run(run, changed, event("begun", "", plan.title)));
  s_.observer.run_changed(run_, plan_, records_);
  return {};
}

}  // namespace p2pd
