// SPDX-License-Identifier: MIT
#include "engine/walk.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/nccl.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "plan/alone_gpus.hpp"
#include "plan/journalled_plan.hpp"
#include "plan/resolve.hpp"

namespace p2pd {

namespace {

/// "; gone since the last full proof: 2 ordered pairs, with 0000:04:00.0"; empty if it has no pair more.
std::string pairs_gone(const Host& host, const std::vector<PciDevice>& devices) {
  const nlohmann::json report = proof_report(host).value_or(nlohmann::json());
  const auto takes_part = [&](const std::string& address) {
    const auto gpu = std::ranges::find(devices, address, &PciDevice::address);
    return gpu != devices.end() && gpu->takes_part();
  };
  std::vector<std::string> addresses, gone;
  for (const nlohmann::json& gpu : field_of(report, "gpus"))
    if (const nlohmann::json& address = field_of(gpu, "address"); address.is_string()) addresses.push_back(address);
  std::ranges::copy_if(addresses, std::back_inserter(gone), [&](const auto& address) { return !takes_part(address); });
  if (gone.empty()) return {};
  const auto pairs = std::ranges::count_if(field_of(report, "pairs"), [&](const nlohmann::json& pair) {
    return std::ranges::any_of(gone, [&](const std::string& gpu) {
      const auto is_it = [&](const char* end) {
        const std::size_t number = json_number<std::size_t>(pair, end);
        return number < addresses.size() && addresses[number] == gpu;
      };
      return is_it("from") || is_it("to");
    });
  });
  return fmt::format("; gone since the last full proof: {} ordered pairs, with {}", pairs, fmt::join(gone, " and "));
}

/// "P2P is proven between every pair of GPUs on this boot", with the groups if not all GPUs are in one.
std::string proven_between(const Host& host) {
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  const bool whole = peer_groups(devices).size() < 2 && std::ranges::none_of(devices, is_alone);
  return (whole ? "P2P is proven between every pair of GPUs on this boot"
                : fmt::format("P2P is proven within each group of GPUs on this boot: {}", groups_text(devices))) +
         pairs_gone(host, devices);
}

}  // namespace

std::string Walk::why_ineffective(const Step& step, const Finding& finding) {
  return fmt::format("{}: all its requirements are met, but {}", step.id, finding.summary);
}

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
  return s_.journal.save(run_, event("chosen", "", "the resolved plan"));
}

/// Tries the goal first. If it is not reached, checks every gate before any change, fixes the gates that can be fixed,
/// and checks again.
Result<Walk::Outcome> Walk::pass() {
  std::set<std::string> fixed;
  proof_.reset();
  for (bool goal_first = is_untouched();; goal_first = false) {
    Pass pass;
    if (const std::optional<Outcome> found = TRY(look(pass, goal_first))) return *found;
    if (pass.seen.outlook() == Outlook::ready) return arrive(pass);
    if (pass.blockers.empty() && !fixable(pass.seen).empty()) TRY(before_change(pass));
    if (const std::optional<Outcome> found = TRY(obstructed(pass))) return *found;
    if (!pass.blockers.empty()) {
      fixed.clear();
      continue;
    }
    bool again = false;
    for (const Step* step : fixable(pass.seen)) {
      if (const std::optional<Outcome> asked = asked_for()) return *asked;
      if (!fixed.insert(step->id).second)
        return give_up(step->fix.empty() ? why_ineffective(*step, check(*step))
                                         : step->id + " was fixed, and another fix reverted that");
      pass.limited = false;
      TRY(apply_fix(*step, pass));
      if (pass.asked) return *pass.asked;
      if (!pass.failure.empty()) return give_up(pass.failure);
      again |= pass.requirements_changed || record(step->id).status == StepStatus::fixed;
    }
    if (const std::optional<Outcome> found = TRY(obstructed(pass))) return *found;
    if (!pass.blockers.empty()) {
      fixed.clear();
      continue;
    }
    if (again) continue;  // steps that waited for it can be checked now
    if (pass.pending.empty()) return give_up("every gate passes, but the goal is not reached");
    return Outcome{Event::reboot_due, fmt::format("takes effect with a reboot: {}", fmt::join(pass.pending, ", "))};
  }
}

/// True if this run has changed nothing so far.
bool Walk::is_untouched() const {
  return std::ranges::none_of(records_, [](const auto& known) { return known.second.applied; });
}

/// Gates that p2pd can fix, in order. Those that a reboot alone fixes are last: by then it is known whether another one
/// needs a reboot.
std::vector<const Step*> Walk::fixable(const Assessment& seen) const {
  std::vector<const Step*> steps;
  for (const Standing& s : seen.steps)
    if (s.kind == Standing::Kind::fixable && s.step->is_gate()) steps.push_back(s.step);
  std::stable_partition(steps.begin(), steps.end(), [&](const Step* step) { return !reboot_suffices(*step); });
  return steps;
}

/// Checks every gate. Tries the goal if all gates hold, or before any change.
Result<std::optional<Walk::Outcome>> Walk::look(Pass& pass, bool goal_first) {
  if (std::optional<Outcome> asked = asked_for()) return asked;
  const auto host = s_.host.snapshot();  // shared data is read once
  const Check looked = [&](const Step& step) {
    Finding finding = check(step, *host);
    s_.observer.checked(step, finding);
    return finding;
  };
  std::set<std::string> pending;
  for (const auto& [name, known] : records_)
    if (known.status == StepStatus::pending_reboot && known.applied_boot == boot_) pending.insert(name);
  pass.seen = assess(plan_, s_.registry, looked, pending);
  if (std::optional<Outcome> asked = asked_for()) return asked;  // the request may have interrupted a check
  if (const Step* goal = plan_.goal()) {
    StepRecord& known = record(goal->id);
    if (known.crashes >= kCrashes) {
      known.status = StepStatus::failed;
      return give_up(fmt::format("{}: its check crashed the machine {} times", goal->id, known.crashes));
    }
    const bool due = pass.seen.gates_hold() || (goal_first && known.crashes == 0);
    if (due && pass.seen.goal()->kind == Standing::Kind::untried) TRY(try_goal(*goal, pass));
  }
  for (const Standing& standing : pass.seen.steps) TRY(note(standing, pass));
  return std::nullopt;
}

Result<void> Walk::try_goal(const Step& goal, Pass& pass) {
  const Finding finding = TRY(prove(goal));
  s_.observer.checked(goal, finding);
  if (!finding.holds()) TRY_IN("ready file", withdraw_ready(s_.host));
  if (finding.proves() && run_.plan != kVerify)
    TRY_IN("report of the proof", s_.host.create(proof_report_file(), finding.facts.dump() + "\n"));
  pass.limited = finding.verdict == Verdict::limited;
  pass.refuted = finding.verdict == Verdict::fail || pass.limited;
  pass.proven = finding.verdict == Verdict::pass;
  pass.seen.judge_goal(finding);
  return {};
}

/// Records the state of a step, and its consequence for the pass.
Result<void> Walk::note(const Standing& standing, Pass& pass) {
  const Step& step = *standing.step;
  StepRecord& known = record(step.id);
  if (!standing.finding.summary.empty()) known.finding = to_json(standing.finding);
  if (standing.kind == Standing::Kind::holds) {
    known.status = known.applied ? StepStatus::fixed : StepStatus::holds;
    known.attempts = 0;
    known.crashes = 0;                           // the machine booted: a later failure has another cause
    TRY(s_.undo.clear_unfinished(owner(step)));  // left by a fix that was interrupted after its last effect
    return close_intents(known, "held");
  }
  if (standing.kind == Standing::Kind::pending) {
    pass.pending.push_back(step.id);
    return {};
  }
  const bool refuses = standing.is_failing() && step.kind != StepKind::upkeep && refuses_trial(step);
  pass.trial_refused |= refuses;
  const bool stands = step.kind != StepKind::upkeep && pass.seen.outlook() != Outlook::ready &&
                      (standing.kind == Standing::Kind::blocked || standing.kind == Standing::Kind::busy || refuses);
  if (stands) {
    known.status = StepStatus::blocked;
    if (!standing.next.empty()) known.finding["next"] = standing.next;  // of the obstacle, which may be another step
    const bool ineffective = step.fix.empty() && !step.needs.empty() && follows_a_change(step);
    block(step,
          !standing.obstacle.empty() ? fmt::format("{} needs {}", step.id, standing.obstacle)
          : ineffective              ? why_ineffective(step, standing.finding)
                                     : fmt::format("{}: {}", step.id, standing.finding.summary),
          standing.passes, pass);
  } else if (known.status != StepStatus::pending_reboot) {
    known.status = StepStatus::waiting;
  }
  return {};
}

/// Commits the changes on trial and keeps up the machine, once the goal is reached or reached as far as possible.
Result<Walk::Outcome> Walk::arrive(Pass& pass) {
  if (const std::optional<Outcome> asked = asked_for()) return *asked;
  std::string less;  // proven part of the goal
  if (pass.proven || pass.limited) {
    const Finding& finding = pass.seen.goal()->finding;
    proof_ =
        run_.plan == kVerify ? what_stands(before_, finding) : Proof{pass.limited, finding.fit_for, finding.summary};
    pass.limited = proof_->limited;
    StepRecord& known = record(pass.seen.goal()->step->id);
    known.finding["fit_for"] = proof_->fit_for;
    if (pass.limited) known.status = StepStatus::waiting;  // the operator need not act
    less = pass.proven ? fmt::format("fit for {}", fmt::join(proof_->fit_for, ", ")) : finding.summary;
  }
  if (const std::optional<Outcome> waits = TRY(commit())) return *waits;
  const std::string left = TRY(keep_up(pass.seen));
  if (const std::optional<Outcome> asked = asked_for()) return *asked;
  const std::string reason = pass.limited        ? "P2P is proven on this boot, for less than the plan wants: " + less
                             : pass.proven       ? proven_between(*s_.host.snapshot())
                             : is_image(s_.host) ? "every step passes; checks of the machine run when the image boots"
                                                 : "every step holds";
  return Outcome{pass.limited  ? Event::in_part
                 : pass.proven ? Event::proven
                               : Event::settled,
                 reason + (left.empty() ? "" : "; maintenance failed: " + left)};
}

/// Fixes upkeep steps that do not hold. A failure is reported, and does not fail the goal.
Result<std::string> Walk::keep_up(const Assessment& seen) {
  std::vector<std::string> left;
  for (const Standing& s : seen.steps) {
    if (s.step->kind != StepKind::upkeep || s.kind == Standing::Kind::holds || s.kind == Standing::Kind::note) continue;
    Pass own;
    const auto holds = [&](const std::string& name) { return check(*plan_.step(name)).holds(); };
    const bool its_turn =
        s.kind == Standing::Kind::waits && std::ranges::all_of(s.step->after, holds);  // prerequisites hold by now
    const bool due = s.kind == Standing::Kind::fixable || its_turn;
    if (due && !check(*s.step).holds()) {  // the proof may have settled it
      TRY(before_change(own));
      if (own.blockers.empty()) TRY(apply_fix(*s.step, own));
    }
    const Finding finding = check(*s.step);
    record(s.step->id).finding = to_json(finding);
    if (!finding.holds())
      left.push_back(!own.failure.empty()
                         ? own.failure
                         : fmt::format("{}: {}", s.step->id, s.obstacle.empty() ? finding.summary : s.obstacle));
  }
  return fmt::format("{}", fmt::join(left, "; "));
}

/// Handles blockers: tries an alternative, waits and checks again, ends the run, or asks the operator to act.
Result<std::optional<Walk::Outcome>> Walk::obstructed(Pass& pass) {
  if (pass.blockers.empty()) return std::nullopt;
  if (std::optional<Outcome> asked = asked_for()) return asked;  // the request may have interrupted a check
  if (((pass.refuted && pass.seen.gates_hold()) || pass.trial_refused) && TRY(try_alternative())) return std::nullopt;
  std::string why = fmt::format("{}", fmt::join(pass.blockers, "; "));
  if (const Standing* goal = pass.seen.goal();
      goal != nullptr && goal->kind == Standing::Kind::waits && !goal->finding.summary.empty())
    why = fmt::format("{}: {}; {}", goal->step->id, goal->finding.summary, why);
  if (pass.limited && fixable(pass.seen).empty()) return arrive(pass);  // limited P2P is better than none: it is kept
  if (pass.ineffective) return give_up(std::move(why));
  if (!pass.lasting && plan_.policy.busy == Busy::wait) return wait_a_while(why);
  return Outcome{Event::blocker, std::move(why)};
}

/// Commits the changes on trial: everything holds. What fails takes nothing away: P2P works, and the changes stay on
/// trial. What is busy is waited for; anything else is tried again, then needs a person or the next boot.
Result<std::optional<Walk::Outcome>> Walk::commit() {
  std::vector<UndoStore::Owner> changes;
  for (const Step& step : plan_.steps)
    if (const StepRecord& known = record(step.id); known.applied && !known.committed) changes.push_back(owner(step));
  if (proof_ && !only_checks())
    for (UndoStore::Owner& left : TRY(left_on_trial())) changes.push_back(std::move(left));
  for (const UndoStore::Owner& change : changes)
    for (int failed = 0;;) {
      const std::optional<Error> error = TRY(commit(change));
      if (!error) break;
      if (proof_) TRY_IN("ready file", announce(s_.host, *proof_));
      std::string why = fmt::format("{}{} is not permanent yet: {}", proof_ ? "P2P is proven on this boot, but " : "",
                                    change.step, error->text());
      if (error->code != ErrorCode::busy && ++failed >= plan_.policy.attempts)
        return Outcome{Event::blocker, std::move(why)};
      if (std::optional<Outcome> asked = TRY(wait_a_while(why))) return asked;
    }
  return std::nullopt;
}

/// Changes on trial of earlier runs, which ended before their proof, or are not in the journal.
Result<std::vector<UndoStore::Owner>> Walk::left_on_trial() const {
  const std::vector<Run> runs = TRY(s_.journal.runs_in_place());
  std::vector<UndoStore::Owner> left;
  for (const UndoStore::Owner& change : s_.undo.owners()) {
    const auto run = std::ranges::find(runs, change.run, &Run::id);
    const bool ended_well = run != runs.end() && run->result != "failed";
    if (change.run != run_.id && !ended_well) left.push_back(change);
  }
  return left;
}

/// Tries once to make a change permanent. Returns the reason why it is not.
Result<std::optional<Error>> Walk::commit(const UndoStore::Owner& change) {
  const Action* fix = s_.registry.action(change.fix);
  if (fix == nullptr || fix->commit == nullptr) {
    record(change.step).committed = true;
    return std::nullopt;
  }
  Result<void> done;
  TRY(with_intent(Intent::Kind::commit, change.step, event("committing", change.step, ""),
                  [&](StepRecord& known) -> Result<JournalEvent> {
                    s_.undo.begin(change);
                    done = fix->commit(s_.host, change.with);
                    if (done) done = s_.host.files().make_durable();
                    if (done) done = s_.undo.note_result();
                    if (!done && done.error().code == ErrorCode::interrupted) return Failure(done.error());
                    known.committed = done.has_value();
                    return event(done ? "committed" : "commit-failed", change.step, done ? "" : done.error().text());
                  }));
  return done ? std::nullopt : std::optional(done.error());
}

}  // namespace p2pd
