// SPDX-License-Identifier: MIT
// A pass over the plan: looks at the machine, tries the goal, and fixes what does not hold.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/directories.hpp"
#include "engine/hooks.hpp"
#include "engine/walk.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/nccl.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "plan/assess.hpp"
#include "plan/journalled_plan.hpp"
#include "plan/resolve.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::seconds kBetweenAttempts{2};
constexpr int kCrashes = 2;  // crashes after which a step fails; one may have been a power cut

/// "; gone since the last full proof: 2 ordered pairs, with 0000:04:00.0"; empty if it has no pair more.
std::string pairs_gone(const Host& host, const std::vector<PciDevice>& devices) {
  const bench::Measurement proven = proof_report(host).value_or(bench::BenchReport()).measurement;
  const auto is_gone = [&](const bench::Gpu& gpu) {
    const auto here = std::ranges::find(devices, gpu.address, &PciDevice::address);
    return here == devices.end() || !here->takes_part();
  };
  std::vector<std::string> gone;
  for (const bench::Gpu& gpu : proven.gpus)
    if (is_gone(gpu)) gone.push_back(gpu.address);
  if (gone.empty()) return {};
  const auto pairs = std::ranges::count_if(proven.pairs, [&](const bench::Pair& pair) {
    return is_gone(proven.gpus[static_cast<std::size_t>(pair.from)]) ||
           is_gone(proven.gpus[static_cast<std::size_t>(pair.to)]);
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

std::string why_ineffective(const Step& step, const Finding& finding) {
  return fmt::format("{}: all its requirements are met, but {}", step.id, finding.summary);
}

}  // namespace

/// One look at the machine, and the fixes that follow from it. `w_` has the run, its plan and its records.
class Walk::Pass {
 public:
  explicit Pass(Walk& walk) : w_(walk) {}

  /// Checks every gate. Tries the goal if all gates hold, or before any change.
  Result<std::optional<Outcome>> look(bool goal_first) {
    if (std::optional<Outcome> asked = w_.asked_for()) return asked;
    const auto host = host_.snapshot();  // shared data is read once
    const Check looked = [&](const Step& step) {
      Finding finding = w_.check(step, *host);
      observer_.checked(step, finding);
      return finding;
    };
    std::set<std::string> pending;
    for (const auto& [name, known] : w_.records_)
      if (known.status == StepStatus::pending_reboot && known.applied_boot == w_.boot_) pending.insert(name);
    seen_ = assess(plan_, registry_, looked, pending);
    if (std::optional<Outcome> asked = w_.asked_for()) return asked;  // the request may have interrupted a check
    if (const Step* goal = plan_.goal()) {
      StepRecord& known = w_.record(goal->id);
      if (known.crashes >= kCrashes) {
        known.status = StepStatus::failed;
        return w_.give_up(fmt::format("{}: its check crashed the machine {} times", goal->id, known.crashes));
      }
      const bool due = seen_.gates_hold() || (goal_first && known.crashes == 0);
      if (due && seen_.goal()->kind == Standing::Kind::untried) TRY(try_goal(*goal));
    }
    for (const Standing& standing : seen_.steps) TRY(note(standing));
    return std::nullopt;
  }

  bool arrived() const { return seen_.outlook() == Outlook::ready; }
  bool is_blocked() const { return !blockers_.empty(); }

  /// Gates that p2pd can fix, in order. Those that a reboot alone fixes are last: by then it is known whether another
  /// one needs a reboot.
  std::vector<const Step*> fixable() const {
    std::vector<const Step*> steps;
    for (const Standing& s : seen_.steps)
      if (s.kind == Standing::Kind::fixable && s.step->is_gate()) steps.push_back(s.step);
    std::stable_partition(steps.begin(), steps.end(), [&](const Step* step) { return !reboot_suffices(*step); });
    return steps;
  }

  /// Runs the hooks before the first change of a run. A hook that fails is a transient blocker, like a machine in use;
  /// one that cannot run in any of the directories needs a person.
  Result<void> before_change() {
    if (!w_.is_untouched() || w_.only_checks() || w_.run_.plan == kEachBoot) return {};
    for (const std::string_view directory : {kBeforeChange, kAfterReady, kOnFailure}) {
      const Result<void> sound = check_hooks(host_, directory);
      if (sound) continue;
      blockers_.push_back(sound.error().text());
      lasting_ = true;
    }
    if (lasting_) return {};
    const Result<bool> ran = run_hooks(host_, kBeforeChange, w_.run_);
    if (ran) return w_.note_hooks(kBeforeChange, ran);
    blockers_.push_back(ran.error().text());
    return {};
  }

  /// Fixes the gates that can be fixed, and adds them to `fixed`. Returns what ends the pass; nothing: every fix
  /// worked, or waits for a reboot, or a blocker is left.
  Result<std::optional<Outcome>> fix_gates(std::set<std::string>& fixed) {
    for (const Step* step : fixable()) {
      if (const std::optional<Outcome> asked = w_.asked_for()) return *asked;
      if (!fixed.insert(step->id).second)
        return w_.give_up(step->fix.empty() ? why_ineffective(*step, w_.check(*step))
                                            : step->id + " was fixed, and another fix reverted that");
      limited_ = false;
      TRY(apply_fix(*step));
      if (asked_) return asked_;
      if (!failure_.empty()) return w_.give_up(failure_);
      progressed_ |= requirements_changed_ || w_.record(step->id).status == StepStatus::fixed;
    }
    return std::nullopt;
  }

  /// Handles blockers: tries an alternative, waits, ends the run, or asks the operator to act. Nothing: check again.
  Result<std::optional<Outcome>> obstructed() {
    if (std::optional<Outcome> asked = w_.asked_for()) return asked;  // the request may have interrupted a check
    if (((refuted_ && seen_.gates_hold()) || trial_refused_) && TRY(try_alternative())) return std::nullopt;
    std::string why = fmt::format("{}", fmt::join(blockers_, "; "));
    if (const Standing* goal = seen_.goal();
        goal != nullptr && goal->kind == Standing::Kind::waits && !goal->finding.summary.empty())
      why = fmt::format("{}: {}; {}", goal->step->id, goal->finding.summary, why);
    if (limited_ && fixable().empty()) return arrive();  // limited P2P is better than none: it is kept
    if (ineffective_) return w_.give_up(std::move(why));
    if (!lasting_ && plan_.policy.busy == Busy::wait) return w_.wait_a_while(why);
    return Outcome{Event::blocker, std::move(why)};
  }

  /// Outcome of a pass without blockers in which all fixes worked; nothing: steps that waited for one can be checked.
  std::optional<Outcome> conclusion() const {
    if (progressed_) return std::nullopt;
    if (pending_.empty()) return w_.give_up("every gate passes, but the goal is not reached");
    return Outcome{Event::reboot_due, fmt::format("takes effect with a reboot: {}", fmt::join(pending_, ", "))};
  }

  /// Commits the changes on trial and keeps up the machine, once the goal is reached or reached as far as possible.
  Result<Outcome> arrive() {
    if (const std::optional<Outcome> asked = w_.asked_for()) return *asked;
    std::string less;  // proven part of the goal
    if (proven_ || limited_) {
      const Finding& finding = seen_.goal()->finding;
      w_.proof_ = w_.run_.plan == kVerify ? what_stands(w_.before_, finding)
                                          : Proof{limited_, finding.fit_for, finding.summary};
      limited_ = w_.proof_->limited;
      StepRecord& known = w_.record(seen_.goal()->step->id);
      known.finding["fit_for"] = w_.proof_->fit_for;
      if (limited_) known.status = StepStatus::waiting;  // the operator need not act
      less = proven_ ? fmt::format("fit for {}", fmt::join(w_.proof_->fit_for, ", ")) : finding.summary;
    }
    if (const std::optional<Outcome> waits = TRY(commit())) return *waits;
    const std::string left = TRY(keep_up());
    if (const std::optional<Outcome> asked = w_.asked_for()) return *asked;
    const std::string reason = limited_          ? "P2P is proven on this boot, for less than the plan wants: " + less
                               : proven_         ? proven_between(*host_.snapshot())
                               : is_image(host_) ? "every step passes; checks of the machine run when the image boots"
                                                 : "every step holds";
    return Outcome{limited_  ? Event::in_part
                   : proven_ ? Event::proven
                             : Event::settled,
                   reason + (left.empty() ? "" : "; maintenance failed: " + left)};
  }

 private:
  // ---- the look -----------------------------------------------------------------------------------------------------

  Result<void> try_goal(const Step& goal) {
    const Finding finding = TRY(w_.prove(goal));
    observer_.checked(goal, finding);
    if (!finding.holds()) TRY_IN("ready file", withdraw_ready(host_));
    if (finding.proves() && w_.run_.plan != kVerify)
      TRY_IN("report of the proof", host_.create(proof_report_file(), finding.facts.dump() + "\n"));
    limited_ = finding.verdict == Verdict::limited;
    refuted_ = finding.verdict == Verdict::fail || limited_;
    proven_ = finding.verdict == Verdict::pass;
    seen_.judge_goal(finding);
    return {};
  }

  /// Records the state of a step, and its consequence for the pass.
  Result<void> note(const Standing& standing) {
    const Step& step = *standing.step;
    StepRecord& known = w_.record(step.id);
    if (!standing.finding.summary.empty()) known.finding = to_json(standing.finding);
    if (standing.kind == Standing::Kind::holds) {
      known.status = known.applied ? StepStatus::fixed : StepStatus::holds;
      known.attempts = 0;
      known.crashes = 0;                            // the machine booted: a later failure has another cause
      TRY(undo_.clear_unfinished(w_.owner(step)));  // left by a fix that was interrupted after its last effect
      return w_.close_intents(known, "held");
    }
    if (standing.kind == Standing::Kind::pending) {
      pending_.push_back(step.id);
      return {};
    }
    const bool refuses = standing.is_failing() && step.kind != StepKind::upkeep && refuses_trial(step);
    trial_refused_ |= refuses;
    const bool stands = step.kind != StepKind::upkeep && seen_.outlook() != Outlook::ready &&
                        (standing.kind == Standing::Kind::blocked || standing.kind == Standing::Kind::busy || refuses);
    if (stands) {
      known.status = StepStatus::blocked;
      if (!standing.next.empty()) known.finding["next"] = standing.next;  // of the obstacle, which may be another step
      if (!standing.obstacle.empty()) known.finding["obstacle"] = standing.obstacle;
      const bool ineffective = step.fix.empty() && !step.needs.empty() && follows_a_change(step);
      block(step,
            !standing.obstacle.empty() ? fmt::format("{} needs {}", step.id, standing.obstacle)
            : ineffective              ? why_ineffective(step, standing.finding)
                                       : fmt::format("{}: {}", step.id, standing.finding.summary),
            standing.transient);
    } else if (known.status != StepStatus::pending_reboot) {
      known.status = StepStatus::waiting;
    }
    return {};
  }

  /// Records a blocker. If this run changed a prerequisite of the step, that change was ineffective.
  void block(const Step& step, std::string why, bool transient) {
    ineffective_ |= !transient && follows_a_change(step);
    lasting_ |= !transient;
    blockers_.push_back(std::move(why));
  }

  /// True if this run has changed a direct or indirect requirement or prerequisite of `step`.
  bool follows_a_change(const Step& step) const {
    const auto changed = [&](const std::string& name) {
      return w_.is_changed(name) || follows_a_change(*plan_.step(name));
    };
    return std::ranges::any_of(step.after, changed) || std::ranges::any_of(step.needs, changed);
  }

  /// True for a gate without a fix of its own that follows, at any distance, a changed alternative that is tried first:
  /// the alternative does not help. The requirements of the gate are not considered.
  bool refuses_trial(const Step& step) const {
    if (!step.fix.empty()) return false;
    const std::function<bool(const Step&)> follows = [&](const Step& one) {
      return std::ranges::any_of(one.after, [&](const std::string& name) {
        const Step& earlier = *plan_.step(name);
        return (earlier.first && earlier.tried == Tried::now && w_.is_changed(name)) || follows(earlier);
      });
    };
    return follows(step);
  }

  // ---- fixes --------------------------------------------------------------------------------------------------------

  bool reboot_suffices(const Step& step) const { return !step.fix.empty() && w_.action(step).reboot_suffices; }

  /// Fixes a step that does not hold.
  Result<void> apply_fix(const Step& step) {
    StepRecord& known = w_.record(step.id);
    if (known.status == StepStatus::pending_reboot && !TRY(survived(step, known))) return {};
    if (!TRY(satisfy_requirements(step.needs))) return {};
    if (!pending_.empty() && reboot_suffices(step)) {
      known.status = StepStatus::pending_reboot;
      known.applied_boot = w_.boot_;
      pending_.push_back(step.id);
      return w_.s_.journal.save(w_.run_, {known}, w_.in_place(),
                                w_.event("left-to-reboot", step.id, "done by the reboot that is due anyway"));
    }
    if (!step.fix.empty()) {
      TRY(fix(step));
    } else if (const Finding finding = w_.check(step); finding.holds()) {
      known.status = StepStatus::fixed;
    } else if (requirements_changed_) {  // the requirements are new: the step's prerequisites are checked again
      known.status = StepStatus::waiting;
    } else {
      known.status = StepStatus::blocked;
      block(step, why_ineffective(step, finding), false);
    }
    if (known.status == StepStatus::pending_reboot) pending_.push_back(step.id);
    return {};
  }

  /// Satisfies requirements in order. Returns false if one was not satisfied, for the reason that this pass then has.
  Result<bool> satisfy_requirements(const std::vector<std::string>& needs) {
    for (const std::string& name : needs) {
      const Step& need = *plan_.step(name);
      if (w_.check(need).holds()) {
        TRY(undo_.clear_unfinished(w_.owner(need)));
        continue;
      }
      if ((asked_ = w_.asked_for())) return false;
      if (!TRY(satisfy_requirements(need.needs))) return false;
      const std::size_t blocked = blockers_.size();
      TRY(fix(need));
      if (!failure_.empty() || asked_ || blockers_.size() > blocked) return false;
      requirements_changed_ = true;
      if (const Finding finding = w_.check(need); !finding.holds()) {
        const bool transient = finding.verdict == Verdict::fail && registry_.probe(need.check)->transient;
        block(need, fmt::format("{}: {}", name, finding.summary), transient);
        return false;
      }
    }
    return true;
  }

  /// Fails a step that does not hold after its reboot, except after the first possible crash of that boot.
  Result<bool> survived(const Step& step, StepRecord& known) {
    const std::string seen = known.finding.value("summary", "");
    if (!w_.action(step).hazard) {
      known.status = StepStatus::failed;
      failure_ = fmt::format("{} still does not hold after its reboot: {}", step.id, seen);
      return false;
    }
    ++known.crashes;
    known.attempts = 0;
    TRY(w_.close_intents(known, "crashed"));
    if (known.crashes < kCrashes) return true;
    known.status = StepStatus::failed;
    failure_ = fmt::format("{}: the trial boot did not come up, {} times: {}", step.id, known.crashes, seen);
    return false;
  }

  /// Runs the fix of a step until it works, as often as the plan allows.
  Result<void> fix(const Step& step) {
    StepRecord& known = w_.record(step.id);
    if (known.crashes >= kCrashes) {
      failure_ = fmt::format("{}: its fix crashed the machine {} times", step.id, known.crashes);
      return {};
    }
    std::string why;
    while (known.attempts < plan_.policy.attempts) {
      if (known.attempts > 0 && (asked_ = w_.asked_for())) return {};
      if (known.attempts > 0) w_.s_.clock.wait(kBetweenAttempts);
      why = TRY(attempt(step));
      if (why.empty()) return {};
      if (const std::optional<std::string> busy = passing_need(step)) {  // it came after the requirements were checked
        known.attempts = 0;
        known.status = StepStatus::blocked;
        block(step, *busy, true);
        return {};
      }
    }
    if ((asked_ = w_.asked_for())) {  // an attempt that the request may have interrupted is no failure
      known.attempts = 0;
      return {};
    }
    known.status = StepStatus::failed;
    if (why.empty()) why = w_.check(step).summary;  // an earlier start used up the attempts
    failure_ = fmt::format("{} could not be fixed in {} attempts: {}", step.id, known.attempts, why);
    return {};
  }

  /// Failing requirement of a step, at any distance, that ends without p2pd, such as a held lock of dpkg.
  std::optional<std::string> passing_need(const Step& step) const {
    for (const std::string& name : step.needs) {
      const Step& need = *plan_.step(name);
      if (registry_.probe(need.check)->transient)
        if (const Finding finding = w_.check(need); finding.verdict == Verdict::fail)
          return fmt::format("{} needs {}: {}", step.id, name, finding.summary);
      if (std::optional<std::string> deeper = passing_need(need)) return deeper;
    }
    return std::nullopt;
  }

  /// Runs a fix once, with an intent. Returns the reason why it did not work, or empty.
  Result<std::string> attempt(const Step& step) {
    const Action& act = w_.action(step);
    const auto kind = act.hazard && act.effect == Effect::live ? Intent::Kind::hazard : Intent::Kind::fix;
    std::string why;
    TRY(w_.with_intent(kind, w_.event("fixing", step.id, step.title), [&](StepRecord& known) -> Result<JournalEvent> {
      TRY_IN("ready file", withdraw_ready(host_));  // the proven state is about to change
      undo_.begin(w_.owner(step));
      observer_.fixing(step);
      const std::optional<Error> error = TRY(w_.changed_by(act.apply, step.with));
      if (error) why = error->text();
      ++known.attempts;
      known.applied = true;
      if (!error) {
        const Finding finding = w_.check(step);
        known.finding = to_json(finding);
        known.applied_boot = w_.boot_;
        known.status = finding.holds()                ? StepStatus::fixed
                       : act.effect == Effect::reboot ? StepStatus::pending_reboot
                                                      : StepStatus::waiting;
        if (finding.holds()) known.attempts = 0;
        if (known.status == StepStatus::waiting) why = "its fix succeeded, but the check fails: " + finding.summary;
      }
      observer_.fixed(step, known, why.empty() ? Result<void>() : fail(ErrorCode::command, why));
      return w_.event(why.empty() ? "fixed" : "fix-failed", step.id, why);
    }));
    return why;
  }

  /// Undoes the alternative on trial after a failed proof or a failing gate, and makes the plan's next alternative that
  /// does not hold a gate. After an alternative that was tried first, the gates after it are next. Returns false if no
  /// alternative is left.
  Result<bool> try_alternative() {
    const auto escalated = [&](std::string_view type, std::string_view step, std::string text) {
      w_.run_.resolved = journal_text(plan_);
      return w_.save(type, step, std::move(text));
    };
    bool spent = false;
    const auto on_trial = [](const Step& step) { return step.tried == Tried::now; };
    auto trial =
        std::ranges::find_if(plan_.steps, [&](const Step& step) { return on_trial(step) && w_.is_changed(step.id); });
    if (trial == plan_.steps.end()) trial = std::ranges::find_if(plan_.steps, on_trial);
    if (trial != plan_.steps.end()) {
      const bool goes_on = trial->first && w_.is_changed(trial->id);
      TRY(undo_step(*trial));
      trial->tried = Tried::ineffective;
      spent = true;
      if (!trial->spares.empty()) {  // gates that it did without count from now on
        plan_.gpus.alone.reset();
        choose_gpus(host_, plan_, registry_);
      }
      if (goes_on) {
        TRY(escalated("escalated", trial->id, "ineffective, and undone: the next alternative is tried"));
        return true;
      }
    }
    for (Step& step : plan_.steps) {
      if (step.kind != StepKind::alternative || step.tried != Tried::no) continue;
      spent = true;
      step.tried = w_.check(step).holds() ? Tried::ineffective : Tried::now;
      if (step.tried == Tried::ineffective) continue;
      TRY(escalated("escalated", step.id, "the proof failed: this alternative is tried"));
      return true;
    }
    if (spent) TRY(escalated("not-escalated", "", "the proof failed, and no alternative is left"));
    return false;
  }

  /// Undoes the changes of a step of this run, and with them the later changes of this run.
  Result<void> undo_step(const Step& step) {
    while (w_.is_changed(step.id)) {
      const std::optional<UndoStore::Owner> newest = w_.undoable();
      if (!newest) return {};  // its fix ran, and changed nothing
      TRY_IN("undo of " + newest->step, w_.undo(*newest));
    }
    return {};
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /// Fixes upkeep steps that do not hold. A failure is reported, and does not fail the goal.
  Result<std::string> keep_up() {
    std::vector<std::string> left;
    for (const Standing& s : seen_.steps) {
      if (s.step->kind != StepKind::upkeep || s.kind == Standing::Kind::holds || s.kind == Standing::Kind::note)
        continue;
      Pass own(w_);
      const auto holds = [&](const std::string& name) { return w_.check(*plan_.step(name)).holds(); };
      const bool its_turn =
          s.kind == Standing::Kind::waits && std::ranges::all_of(s.step->after, holds);  // prerequisites hold by now
      const bool due = s.kind == Standing::Kind::fixable || its_turn;
      if (due && !w_.check(*s.step).holds()) {  // the proof may have settled it
        TRY(own.before_change());
        if (own.blockers_.empty()) TRY(own.apply_fix(*s.step));
      }
      const Finding finding = w_.check(*s.step);
      w_.record(s.step->id).finding = to_json(finding);
      if (!finding.holds())
        left.push_back(!own.failure_.empty()
                           ? own.failure_
                           : fmt::format("{}: {}", s.step->id, s.obstacle.empty() ? finding.summary : s.obstacle));
    }
    return fmt::format("{}", fmt::join(left, "; "));
  }

  /// Commits the changes on trial: everything holds. What fails takes nothing away: P2P works, and the changes stay on
  /// trial. What is busy is waited for; anything else is tried again, then needs a person or the next boot.
  Result<std::optional<Outcome>> commit() {
    std::vector<UndoStore::Owner> changes;
    for (const Step& step : plan_.steps)
      if (const StepRecord& known = w_.record(step.id); known.applied && !known.committed)
        changes.push_back(w_.owner(step));
    if (w_.proof_ && !w_.only_checks())
      for (UndoStore::Owner& left : TRY(left_on_trial())) changes.push_back(std::move(left));
    for (const UndoStore::Owner& change : changes)
      for (int failed = 0;;) {
        const std::optional<Error> error = TRY(commit(change));
        if (!error) break;
        if (w_.proof_) TRY_IN("ready file", announce(host_, *w_.proof_));
        std::string why = fmt::format("{}{} is not permanent yet: {}",
                                      w_.proof_ ? "P2P is proven on this boot, but " : "", change.step, error->text());
        if (error->code != ErrorCode::busy && ++failed >= plan_.policy.attempts)
          return Outcome{Event::blocker, std::move(why)};
        if (std::optional<Outcome> asked = TRY(w_.wait_a_while(why))) return asked;
      }
    return std::nullopt;
  }

  /// Changes on trial of earlier runs, which ended before their proof, or are not in the journal.
  Result<std::vector<UndoStore::Owner>> left_on_trial() const {
    const std::vector<Run> runs = TRY(w_.s_.journal.runs_in_place());
    std::vector<UndoStore::Owner> left;
    for (const UndoStore::Owner& change : undo_.owners()) {
      const auto run = std::ranges::find(runs, change.run, &Run::id);
      const bool ended_well = run != runs.end() && run->result != "failed";
      if (change.run != w_.run_.id && !ended_well) left.push_back(change);
    }
    return left;
  }

  /// Tries once to make a change permanent. Returns the reason why it is not.
  Result<std::optional<Error>> commit(const UndoStore::Owner& change) {
    const Action* fix = registry_.action(change.fix);
    if (fix == nullptr || fix->commit == nullptr) {
      w_.record(change.step).committed = true;
      return std::nullopt;
    }
    std::optional<Error> error;
    TRY(w_.with_intent(
        Intent::Kind::commit, w_.event("committing", change.step, ""), [&](StepRecord& known) -> Result<JournalEvent> {
          undo_.begin(change);
          error = TRY(w_.changed_by(fix->commit, change.with));
          known.committed = !error;
          return w_.event(error ? "commit-failed" : "committed", change.step, error ? error->text() : "");
        }));
    return error;
  }

  Walk& w_;
  Host& host_ = w_.s_.host;
  const Registry& registry_ = w_.s_.registry;
  UndoStore& undo_ = w_.s_.undo;
  Observer& observer_ = w_.s_.observer;
  Plan& plan_ = w_.plan_;

  Assessment seen_;
  bool proven_ = false;                ///< on this boot, by this run
  bool limited_ = false;               ///< the same, for less than the plan wants, and nothing changed since
  bool refuted_ = false;               ///< the proof was tried, and failed or was limited
  std::vector<std::string> pending_;   ///< steps that wait for a reboot
  std::vector<std::string> blockers_;  ///< "step: why"
  bool lasting_ = false;               ///< one of the blockers is not transient
  bool trial_refused_ = false;         ///< a gate shows that the alternative on trial does not help
  bool ineffective_ = false;           ///< one of the blockers remains although its prerequisites were changed
  std::string failure_;                ///< reason of the run's failure; empty: no failure
  bool requirements_changed_ = false;  ///< a missing requirement was satisfied
  bool progressed_ = false;            ///< something was fixed: steps that waited for it can be checked
  std::optional<Outcome> asked_;       ///< request that arrived while requirements were satisfied
};

/// Tries the goal first. If it is not reached, checks every gate before any change, fixes the gates that can be fixed,
/// and checks again.
Result<Walk::Outcome> Walk::pass() {
  std::set<std::string> fixed;
  proof_.reset();
  for (bool goal_first = is_untouched();; goal_first = false) {
    Pass pass(*this);
    if (const std::optional<Outcome> found = TRY(pass.look(goal_first))) return *found;
    if (pass.arrived()) return pass.arrive();
    if (!pass.is_blocked() && !pass.fixable().empty()) TRY(pass.before_change());
    if (!pass.is_blocked())
      if (const std::optional<Outcome> found = TRY(pass.fix_gates(fixed))) return *found;
    if (pass.is_blocked()) {
      if (const std::optional<Outcome> found = TRY(pass.obstructed())) return *found;
      fixed.clear();
    } else if (const std::optional<Outcome> found = pass.conclusion()) {
      return *found;
    }
  }
}

}  // namespace p2pd
