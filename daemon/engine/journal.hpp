// SPDX-License-Identifier: MIT
#pragma once

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
#include "engine/transitions.hpp"

struct sqlite3;

namespace p2pd {

/// The changes of a run that are in place: `revert` would undo them.
struct RunChanges {
  std::int64_t run = 0;
  std::string plan;  ///< empty: the run is not on record
  std::vector<std::string> steps;
};

/// Run and step of each change that is in place, as the undo records have it.
using ChangedSteps = std::vector<std::pair<std::int64_t, std::string>>;

/// How far a run that is reverting undoes.
enum class Rollback {
  own,     ///< what it changed itself
  failed,  ///< the same, because it failed
  all      ///< what every run changed
};

/// One walk of a resolved plan until it settles. Times are ISO 8601 UTC.
struct Run {
  std::int64_t id = 0;  ///< 0: not begun
  std::string plan;     ///< name
  std::string resolved; ///< the resolved plan, JSON
  RunState state = RunState::idle;
  Rollback rollback = Rollback::own;
  int reboots = 0;          ///< counted before each; unexpected boots too
  std::string reboot_from;  ///< boot id of the boot that a counted reboot ends; empty: none is due
  bool reboot_due = false;  ///< what was undone is still in effect in this boot
  std::string result;       ///< done, ready, limited, failed, cancelled, reverted, superseded; empty while open
  std::string reason;
  std::string started;
  std::string ended;
  std::vector<RunChanges> stays = {};  ///< oldest first, besides the changes of an open run itself; of steps, not stored
};

inline constexpr std::size_t kFindingLimit = 2U << 20;  // of one step; the report of p2p-bench on 16 GPUs is a quarter of it

enum class StepStatus { waiting, holds, fixed, pending_reboot, blocked, failed, reverted };
std::string_view to_string(StepStatus status);
std::optional<StepStatus> step_status(std::string_view name);
/// Whether a step of this status has changed the host in its run, be it that this is undone by now.
inline bool has_changed(std::optional<StepStatus> status) {
  return status == StepStatus::fixed || status == StepStatus::pending_reboot || status == StepStatus::reverted;
}

/// What is known of a step in a run.
struct StepRecord {
  std::string step;
  StepStatus status = StepStatus::waiting;
  int attempts = 0;          ///< completed tries of its fix since it last held
  int crashes = 0;           ///< boots that its fix may have brought down
  bool applied = false;      ///< its fix has changed this host in this run
  bool committed = false;
  std::string applied_boot;  ///< boot id in which its fix was last applied
  nlohmann::json finding = nlohmann::json::object();

  bool operator==(const StepRecord&) const = default;
};

/// Something begun and not known to have ended; what a later start finds of a crash.
struct Intent {
  enum class Kind { fix, hazard, commit, undo, proof };
  std::int64_t id = 0;
  Kind kind = Kind::fix;
  std::string step;
  std::string boot_id;
};
std::string_view to_string(Intent::Kind kind);

struct JournalEvent {
  std::string time;
  std::string boot_id;
  std::int64_t run = 0;
  std::string step;
  std::string type;
  std::string text;
};

/// The durable memory of runs: SQLite in WAL mode, every call one synced commit. One writer; any number of readers.
///
/// A failed write (full disk, lost file system) is an Error and is never retried as if it had worked. Its size is
/// bounded: old runs keep their verdicts, and the oldest are removed, but for those that undo and the next proof need.
/// What it keeps of texts has no user info of URLs: no password of a proxy or a mirror.
class Journal {
 public:
  enum class Access { write, read };

  /// `directory`/state.db. A corrupt or newer-schema database is renamed to state.db.set-aside and stays so until
  /// `accept_loss`: ErrorCode::database_quarantined. One that cannot be read now stays where it is: another Error. Read access to a journal that does not exist: ErrorCode::not_found.
  static Result<Journal> open(const std::filesystem::path& directory, Access access);
  /// Told to go on without what lies aside; it is kept under another name.
  static Result<void> accept_loss(const std::filesystem::path& directory);

  /// Begins a run with an id above `run.id`, and prunes what old runs have left.
  Result<Run> begin_run(const Run& run, const ChangedSteps& in_place, const JournalEvent& event);
  /// Saves the run and an event in one commit.
  Result<void> save(const Run& run, const JournalEvent& event);
  Result<void> save(const Run& run, const std::vector<StepRecord>& steps, const ChangedSteps& in_place,
                    const JournalEvent& event);
  Result<std::optional<Run>> last_run() const;
  /// The newest run that proved P2P, be it for less than its plan wants, of any plan but `besides`.
  Result<std::optional<Run>> newest_proven(std::string_view besides = {}) const;
  /// The runs of which changes are in place, and those that undid all there were; newest first.
  Result<std::vector<Run>> runs_in_place() const;
  /// Newest first, of those older than run `before`; 0: of all.
  Result<std::vector<Run>> runs(int limit, std::int64_t before = 0) const;
  Result<std::vector<RunChanges>> stays(const Run& run) const;
  Result<std::vector<StepRecord>> steps(std::int64_t run) const;

  /// Opens an intent durably before the deed; its id.
  Result<std::int64_t> open_intent(const Run& run, const Intent& intent, const JournalEvent& event);
  Result<void> close_intent(std::int64_t id, const Run& run, const StepRecord& step, const JournalEvent& event);
  Result<std::vector<Intent>> open_intents(std::int64_t run) const;

  Result<bool> knows_boot(std::int64_t run, std::string_view boot_id) const;
  /// Saves a boot of the run, the run, and an event.
  Result<void> add_boot(const Run& run, std::string_view boot_id, const JournalEvent& event);

  /// The newest events of the runs `first` to `last`, oldest first.
  Result<std::vector<JournalEvent>> events(std::int64_t first, std::int64_t last, int limit) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit Journal(sqlite3* db) : db_(db) {}
  Result<void> transaction(const std::function<Result<void>()>& body);
  Result<void> put_run(const Run& run);
  Result<void> put_step(std::int64_t run, const StepRecord& step);
  Result<void> put_event(const JournalEvent& event);
  Result<void> put_in_place(const Run& run, const ChangedSteps& in_place);
  Result<void> prune();

  std::unique_ptr<sqlite3, Close> db_;
};

/// What is kept of the finding of an old run: without facts and evidence.
nlohmann::json verdict_of(const nlohmann::json& finding);

nlohmann::json to_json(const RunChanges& changes);
nlohmann::json to_json(const Run& run);
nlohmann::json to_json(const StepRecord& step);
nlohmann::json to_json(const JournalEvent& event);

}  // namespace p2pd
