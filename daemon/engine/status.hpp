// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/json.hpp"
#include "engine/journal.hpp"

namespace p2pd {

inline constexpr std::string_view kStatusSchema = "p2pd.status/1";

/// What a worker is at.
struct Activity {
  bool at_work = false; ///< a worker walks
  std::string step;     ///< its id; empty between steps
  std::string doing;    ///< "checking", "fixing", "undoing", "waiting", or empty
  std::string message;  ///< the newest line of what runs
};

/// How a run stands, in the one form in which everybody is told: status.json, the bus, p2pctl status --json.
nlohmann::json status_of(const Run& run, const std::map<std::string, StepRecord>& steps, const Activity& activity = {});

/// What a person does next about a run in this state; empty where nothing is to be done.
std::string next_command(const Run& run);

/// The same out of the journal in `state`. A run that ended ready is `idle` unless `proven`: on this boot.
Result<nlohmann::json> status_in_journal(const std::filesystem::path& state, bool proven);

/// What the worker published on this boot, else what the journal says.
Result<nlohmann::json> current_status(const std::filesystem::path& state);

/// A page of history, schema p2pd.history/1: the newest `count` runs with their steps and events, of those older than run
/// `before` where that is not 0. Fewer where that many would be too large for a message; "before" of the answer asks for
/// the next page, and is 0 in the last one.
Result<nlohmann::json> history_in_journal(const std::filesystem::path& state, int count, std::int64_t before = 0);

/// Where the worker publishes.
std::string status_file();

}  // namespace p2pd
