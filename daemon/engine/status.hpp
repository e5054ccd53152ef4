// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/json.hpp"
#include "engine/journal.hpp"

namespace p2pd {

inline constexpr std::string_view kStatusSchema = "p2pd.status/1";

/// Current activity of a worker.
struct Activity {
  bool at_work = false;  ///< a worker runs a walk
  std::string step;      ///< id of the step; empty between steps
  std::string doing;     ///< "checking", "fixing", "undoing", "waiting", or empty
  std::string message;   ///< newest output line of the running command
  std::string since;     ///< when `doing` began, ISO 8601 UTC; empty between steps
};

/// Status of a run as JSON, for status.json, the bus and p2pctl status --json.
nlohmann::json status_of(const Run& run, const std::map<std::string, StepRecord>& steps, const Activity& activity = {});

/// Command that finishes a rollback: that of one run, or of all runs.
std::string finish_command(const Run& run);
/// Next action of the operator for a run in this state, after `instruction`; empty if none is needed.
std::string next_command(const Run& run, const std::string& instruction = "");

/// Status from the journal in `state`. A run that ended ready is `idle` unless `proven` (on this boot).
Result<nlohmann::json> status_in_journal(const std::filesystem::path& state, bool proven);

/// Status that the worker published on this boot, else the status from the journal.
Result<nlohmann::json> current_status(const std::filesystem::path& state);

/// Page of history, schema p2pd.history/1: the newest `count` runs older than run `before` (0: all), with steps and
/// events. The page has fewer runs if that many are too large for a message. "before" in the answer requests the next
/// page; it is 0 in the last one.
Result<nlohmann::json> history_in_journal(const std::filesystem::path& state, int count, std::int64_t before = 0);

/// Path of the status that the worker publishes.
std::string status_file();

}  // namespace p2pd
