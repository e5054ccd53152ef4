// SPDX-License-Identifier: MIT
// What is asked of a walk: how it begins, goes on, turns back, and looks again at each boot.
#include <fmt/format.h>

#include "base/ready.hpp"
#include "engine/walk.hpp"

namespace p2pd {
namespace {

// runs that change nothing that was not there before
constexpr const char* kVerify = "verify";
constexpr const char* kEachBoot = "each-boot";

}  // namespace

Result<Run> Walk::apply(const Plan& plan) {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (last && is_open(last->state)) {
    TRY(load(*last));
    if (plan_.only_checks()) {
      TRY(move(Event::superseded));
    } else if (last->plan != plan.name) {
      return fail(ErrorCode::state, fmt::format("run {} of plan {} is {}", last->id, last->plan, to_string(last->state)),
                  fmt::format("\"p2pctl apply {}\" goes on with it, \"p2pctl revert\" undoes it", last->plan));
    } else {
      if (plan.policy.reboot == RebootPolicy::external) plan_.policy.reboot = RebootPolicy::external;  // walk() saves it
      TRY(move(Event::apply));
      return walk();
    }
  }
  TRY(begin(plan, RunState::walking));
  return walk();
}

Result<Run> Walk::go_on() {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (!last || !is_open(last->state) || last->state == RunState::paused) return last.value_or(Run{});
  TRY(load(*last));
  if (plan_.only_checks() && run_.state != RunState::reverting) return run_;  // another boot asks anew
  if (run_.state == RunState::blocked && TRY(s_.journal.knows_boot(run_.id, boot_))) return run_;  // a person is needed
  TRY(move(Event::go_on));
  return walk();
}

Result<Run> Walk::prove_again() {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (last && is_open(last->state)) {
    TRY(load(*last));
    if (!plan_.only_checks()) return run_;  // it proves for itself
    TRY(move(Event::superseded));
  }
  const std::optional<Run> proven = TRY(s_.journal.newest_ready());
  const std::optional<Run> changed = TRY(s_.journal.newest_besides(kVerify, kEachBoot));
  if (!proven || (changed && changed->id > proven->id) || !proven_on_this_machine(s_.host)) return last.value_or(Run{});
  TRY(load(*proven));
  Plan checks = checks_of(std::move(plan_), s_.vocabulary, true);
  checks.name = kVerify;
  checks.policy = {.reboots = 0, .on_failure = OnFailure::keep, .busy = Busy::wait};
  TRY(begin(checks, RunState::walking));
  return walk();
}

Result<Run> Walk::reassert() {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  const std::optional<Run> changed = TRY(s_.journal.newest_besides(kVerify, kEachBoot));
  if (last && is_open(last->state)) {
    TRY(load(*last));
    if (!plan_.only_checks()) return run_;  // it sees to all of it
    TRY(move(Event::superseded));
  }
  if (!changed || (changed->result != "ready" && changed->result != "done")) return last.value_or(Run{});
  TRY(load(*changed));
  Plan again = each_boot_of(std::move(plan_), s_.vocabulary);
  std::erase_if(again.steps, [&](const Step& step) { return !record(step.id).applied; });
  if (again.steps.empty()) return *last;
  again.name = kEachBoot;
  again.policy = {.reboots = 0, .on_failure = OnFailure::keep};
  TRY(begin(again, RunState::walking));
  return walk();
}

Result<Run> Walk::revert() {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (last && is_open(last->state)) {
    TRY(load(*last));
    TRY(move(plan_.only_checks() && run_.state != RunState::reverting ? Event::superseded : Event::revert));
    if (is_open(run_.state)) return walk();
  }
  if (!s_.undo.newest()) return last.value_or(Run{});
  if (const std::optional<Run> changed = TRY(s_.journal.newest_besides(kVerify, kEachBoot))) TRY(load(*changed));
  TRY(begin(plan_, RunState::reverting));
  return walk();
}

Result<Run> Walk::request(Event event) {
  const std::optional<Run> last = TRY(s_.journal.last_run());
  if (!last) return fail(ErrorCode::state, fmt::format("there is no run to {}", to_string(event)));
  TRY(load(*last));
  if (!is_open(last->state) && event == Event::retry) {
    if (!next_state(last->state, event)) return fail(ErrorCode::state, "the last run did not fail");
    Plan anew = plan_;
    for (Step& step : anew.steps) step.tried = Tried::no;
    TRY(begin(anew, RunState::walking));
  } else {
    TRY(move(event == Event::cancel && plan_.only_checks() && run_.state != RunState::reverting ? Event::superseded : event));
  }
  if (run_.state == RunState::walking || run_.state == RunState::reverting) return walk();
  return run_;
}

Result<void> Walk::load(const Run& run) {
  run_ = run;
  reason_ = run.failing ? run.reason : "";  // why it failed outlives the reboot of the way back
  plan_ = run.resolved.empty() ? Plan{} : TRY_IN("the plan of the open run", parse_plan(run.resolved, "journal", s_.vocabulary));
  records_.clear();
  for (StepRecord& step : TRY(s_.journal.steps(run.id))) records_[step.step] = step;
  return {};
}

Result<void> Walk::begin(const Plan& plan, RunState state) {
  plan_ = plan;
  records_.clear();
  Run run;
  run.plan = plan.name;
  run.resolved = plan.steps.empty() ? "" : to_json(plan).dump();
  if (!run.resolved.empty())  // what could not be read back after a reboot must not begin
    TRY_IN("the plan with every choice made", parse_plan(run.resolved, plan.name, s_.vocabulary));
  run.state = state;
  run.started = event("", "", "").time;
  run.reboot_from = "-";  // the first boot of a run is nobody's crash
  if (state == RunState::reverting) TRY_IN("ready file", withdraw_ready(s_.host));
  run_ = TRY(s_.journal.begin_run(run, event("begun", "", plan.title)));
  s_.observer.run_changed(run_, plan_, records_);
  return {};
}

}  // namespace p2pd
