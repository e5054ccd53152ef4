// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "engine/journal.hpp"
#include "engine/seams.hpp"
#include "engine/undo.hpp"
#include "machine/driver/ready.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Walks a resolved plan until it settles. Level-triggered: the state is read from the host, never from the records;
/// the journal only counts (attempts, reboots, crashes) and records what was begun.
class Walk {
 public:
  struct Seams {
    Host& host;
    const Registry& registry;
    Journal& journal;
    UndoStore& undo;
    Clock& clock;
    Rebooter& rebooter;
    Observer& observer;
    Poll poll;
  };

  /// `boot_id`: id of the running boot; any word for a tree that is not booted.
  Walk(Seams seams, std::string boot_id) : s_(std::move(seams)), boot_(std::move(boot_id)) {}

  /// Begins a run of `plan`, or continues the open one. Returns the run once there is nothing more to do now.
  Result<Run> apply(const Plan& plan);
  /// Continues the open run after a boot, a kill or a stop. Without a run: idle. A paused run stays paused, until the
  /// next boot if it has changes on trial: without p2pd the machine would be without a driver in that boot.
  Result<Run> go_on();
  /// Checks again what an earlier boot proved, with the quick form of the proof: a run of a plan "verify" that
  /// changes nothing. Returns the last run if nothing was proven or a run is open.
  Result<Run> prove_again();
  /// Applies again the fixes of the runs in place that last for one boot only: a run of a plan "each-boot".
  Result<Run> reassert();
  /// Prepares a newly installed kernel, for the newest run that changed something for each kernel. The change belongs
  /// to that run, and is undone with it. ErrorCode::busy: a run is open.
  Result<Run> add_kernel();
  /// Undoes every recorded change of all runs. Every other rollback (a failure, a cancel, an alternative that did
  /// not help) undoes the changes of its own run only.
  Result<Run> revert();
  /// Cancels the last run, also if it has ended since its cancel was accepted.
  Result<Run> cancel_accepted();
  /// Ends an open run without continuing it, and keeps its changes until a revert.
  Result<void> abandon(const std::string& why);
  /// Handles pause, resume, retry or cancel of a run that no walk is working on.
  Result<Run> request(Event event);

 private:
  /// Event that ends a pass, a rollback or a wait, with its reason.
  struct Outcome {
    Event event;
    std::string reason;
  };
  class Pass;  ///< pass.cpp

  // requests.cpp
  Result<bool> load_last();
  Result<void> load(const Run& run);
  Result<void> begin(const Plan& plan, RunState state);
  Result<std::optional<Run>> standing_proof(std::int64_t besides) const;
  static Proof what_stands(Proof before, const Finding& finding);
  Result<void> prove_earlier();

  // walk.cpp
  Result<Run> walk();
  Result<void> choose();
  bool only_checks() const;  ///< nothing in the plan can change this host
  bool is_untouched() const;
  bool was_proven();
  bool is_on_trial() const;

  std::optional<Outcome> asked_for();
  Outcome kept(Event event, const std::string& reason) const;
  Outcome give_up(std::string reason);
  Result<std::optional<Outcome>> wait_a_while(const std::string& why);
  Result<void> move(const Outcome& outcome);
  Result<void> move(Event event) { return move(kept(event, "")); }
  Result<bool> proves_for_itself() const;
  Result<void> rest();
  Result<void> after_end();
  Result<void> note_hooks(std::string_view directory, const Result<bool>& ran);

  Result<std::optional<Outcome>> note_boot();
  std::string in_use() const;
  Result<std::optional<Outcome>> wait_until_idle();
  Result<Outcome> restart(const std::string& why);

  Finding check(const Step& step) const;
  Finding check(const Step& step, const Host& host) const;
  Result<Finding> prove(const Step& step);
  using Ended = std::function<Result<JournalEvent>(StepRecord&)>;
  Result<void> with_intent(Intent::Kind kind, const JournalEvent& begun, const Ended& operation);
  Result<std::optional<Error>> changed_by(Result<void> (*part)(Host&, const Parameters&), const Parameters& with);
  Result<void> close_intents(StepRecord& record, std::string_view outcome);
  StepRecord& record(const std::string& step);
  bool is_changed(const std::string& step) const;
  UndoStore::Owner owner(const Step& step) const;
  const Action& action(const Step& step) const { return *s_.registry.action(step.fix); }
  ChangedSteps in_place() const;
  JournalEvent event(std::string_view type, std::string_view step, std::string text) const;
  Result<void> save(std::string_view type, std::string_view step, std::string text);
  Result<void> warn(const Error& error);

  // pass.cpp, rollback.cpp
  Result<Outcome> pass();
  std::optional<UndoStore::Owner> undoable() const;
  Result<void> prepare_rollback(bool all);
  Result<void> require_rollback(bool all);
  Result<void> require_rollback_at_rest(bool all);
  Outcome undoable_or_kept(Outcome outcome);
  Result<std::optional<Outcome>> heard_in_rollback(const std::optional<Outcome>& asked);
  Result<std::optional<Outcome>> before_revert();
  Result<std::optional<Outcome>> wait_for_rollback();
  Result<Outcome> roll_back();
  Result<void> undo(const UndoStore::Owner& owner);
  Result<std::reference_wrapper<const Action>> fix_of(const UndoStore::Owner& changed) const;

  // names of plans for runs that only check or repeat changes
  static constexpr std::string_view kVerify = "verify";
  static constexpr std::string_view kEachBoot = "each-boot";
  static constexpr int kSecondsBetweenLooks = 10;
  /// Longest wait for users of the machine on a rollback, in seconds: the time of an upgrade with a DKMS build. Only
  /// the reboot at its end ends a process that hangs in the driver.
  static constexpr int kRollbackPatience = 15 * 60;

  Seams s_;
  std::string boot_;
  Plan plan_;
  std::optional<Error> unread_;  ///< reason why the plan is not whole; the run is not continued
  Run run_;
  Proof before_;                ///< for a run "verify": the proof that it checks again
  std::optional<Proof> proof_;  ///< proof of this walk, which the next move to ready or limited announces
  std::map<std::string, StepRecord> records_;
};

}  // namespace p2pd
