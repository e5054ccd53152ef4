// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "engine/database.hpp"
#include "engine/transitions.hpp"

namespace p2pd {

/// Changes of a run that are in place: `revert` would undo them.
struct RunChanges {
  std::int64_t run = 0;
  std::string plan;  ///< empty: the run is not in the journal
  std::vector<std::string> steps;
};

/// Run and step of each change that is in place, from the undo records.
using ChangedSteps = std::vector<std::pair<std::int64_t, std::string>>;

/// Scope of the rollback of a reverting run.
enum class Rollback {
  own,     ///< changes of this run
  failed,  ///< changes of this run, which failed
  all      ///< changes of every run
};
std::string_view to_string(Rollback scope);
std::optional<Rollback> rollback_scope(std::string_view name);

/// One walk of a resolved plan until it settles. Times are ISO 8601 UTC.
struct Run {
  std::int64_t id = 0;   ///< 0: not begun
  std::string plan;      ///< name
  std::string resolved;  ///< the resolved plan, JSON
  RunState state = RunState::idle;
  Rollback rollback = Rollback::own;
  int reboots = 0;          ///< counted before each; includes unexpected boots
  std::string reboot_from;  ///< boot id of the boot that a counted reboot ends; empty: no reboot is due
  bool reboot_due = false;  ///< an undone change is still in effect in this boot
  std::string result;       ///< done, ready, limited, failed, cancelled, reverted, superseded; empty while open
  std::string reason;
  std::string started;
  std::string ended;
  std::vector<RunChanges> stays =
      {};  ///< changes in place, oldest first, without those of an open run itself; from the steps, not stored
};

inline constexpr std::size_t kFindingLimit =
    2U << 20;  // for one step; the report of p2p-bench on 16 GPUs is a quarter of it

enum class StepStatus { waiting, holds, fixed, pending_reboot, blocked, failed, reverted };
std::string_view to_string(StepStatus status);
std::optional<StepStatus> step_status(std::string_view name);
/// True if a step with this status has changed the host in its run, even if the change is undone by now.
inline bool has_changed(std::optional<StepStatus> status) {
  return status == StepStatus::fixed || status == StepStatus::pending_reboot || status == StepStatus::reverted;
}

/// Recorded state of a step in a run.
struct StepRecord {
  std::string step;
  StepStatus status = StepStatus::waiting;
  int attempts = 0;      ///< completed attempts of its fix since it last held
  int crashes = 0;       ///< boots that its fix may have crashed
  bool applied = false;  ///< its fix has changed this host in this run
  bool committed = false;
  std::string applied_boot = {};  ///< boot id in which its fix was last applied
  nlohmann::json finding = nlohmann::json::object();

  bool operator==(const StepRecord&) const = default;
};

/// Operation that was begun and is not known to have ended. A later start finds a crash by it.
struct Intent {
  enum class Kind { fix, hazard, commit, undo, proof };
  std::int64_t id = 0;
  Kind kind = Kind::fix;
  std::string step;
  std::string boot_id;
};
std::string_view to_string(Intent::Kind kind);
std::optional<Intent::Kind> intent_kind(std::string_view name);

/// Time in ISO 8601 UTC, in seconds: "2026-01-31T09:30:00Z".
std::string iso_time(std::chrono::system_clock::time_point time);

struct JournalEvent {
  std::string time;
  std::string boot_id;
  std::int64_t run = 0;
  std::string step;
  std::string type;
  std::string text;
};

/// Durable record of runs: SQLite in WAL mode; every call is one synced commit. One writer, any number of readers.
///
/// A failed write (full disk, lost file system) is an Error and is not retried. The size is bounded: old runs keep
/// their verdicts, and the oldest runs are removed, except for those that undo and the next proof need. Texts are
/// stored without the user info of URLs: no password of a proxy or a mirror. The first writer rewrites the tables of an
/// earlier schema; readers read those as they are.
class Journal {
 public:
  using Access = Database::Access;

  static Result<Journal> open(const std::filesystem::path& directory, Access access) {
    return Journal(TRY(Database::open(directory, access)));
  }

  /// Begins a run with an id above `run.id`, and prunes data of old runs.
  Result<Run> begin_run(const Run& run, const ChangedSteps& in_place, const JournalEvent& event);
  /// Saves the run and an event in one commit.
  Result<void> save(const Run& run, const JournalEvent& event);
  Result<void> save(const Run& run, const std::vector<StepRecord>& steps, const ChangedSteps& in_place,
                    const JournalEvent& event);
  Result<std::optional<Run>> last_run() const;
  /// Newest run that proved P2P, also in part, of any plan except `besides`.
  Result<std::optional<Run>> newest_proven(std::string_view besides = {}) const;
  /// Runs with changes in place, and runs that undid all changes; newest first.
  Result<std::vector<Run>> runs_in_place() const;
  /// Newest first: runs older than run `before`; 0: all.
  Result<std::vector<Run>> runs(int limit, std::int64_t before = 0) const;
  Result<std::vector<RunChanges>> stays(const Run& run) const;
  Result<std::vector<StepRecord>> steps(std::int64_t run) const;

  /// Opens an intent durably before the operation; returns its id.
  Result<std::int64_t> open_intent(const Run& run, const Intent& intent, const JournalEvent& event);
  Result<void> close_intent(std::int64_t id, const Run& run, const StepRecord& step, const JournalEvent& event);
  Result<std::vector<Intent>> open_intents(std::int64_t run) const;

  Result<bool> knows_boot(std::int64_t run, std::string_view boot_id) const;
  /// Saves a boot of the run, the run and an event.
  Result<void> add_boot(const Run& run, std::string_view boot_id, const JournalEvent& event);

  /// Newest events of the runs `first` to `last`, oldest first.
  Result<std::vector<JournalEvent>> events(std::int64_t first, std::int64_t last, int limit) const;

 private:
  explicit Journal(Database db) : db_(std::move(db)) {}
  Result<void> transaction(const std::function<Result<void>()>& body);
  Result<void> put_run(const Run& run);
  Result<void> put_step(std::int64_t run, const StepRecord& step);
  Result<void> put_event(const JournalEvent& event);
  Result<void> put_in_place(const Run& run, const ChangedSteps& in_place);
  Result<void> prune();

  Database db_;
};

/// Part of a finding that an old run keeps: without facts and evidence.
nlohmann::json verdict_of(const nlohmann::json& finding);

nlohmann::json to_json(const RunChanges& changes);
nlohmann::json to_json(const Run& run);
nlohmann::json to_json(const StepRecord& step);
nlohmann::json to_json(const JournalEvent& event);

}  // namespace p2pd
