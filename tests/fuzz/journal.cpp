// SPDX-License-Identifier: MIT
// Any bytes as state.db: it is read completely, or set aside, and after that a new journal accepts a run.
#include "engine/journal.hpp"

#include <limits>

#include "fuzz.hpp"

namespace {

using p2pd::Journal;

void read_all(const Journal& journal) {
  for (const p2pd::Run& run : journal.runs(100).value_or(std::vector<p2pd::Run>())) {
    (void)to_json(run).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (const p2pd::StepRecord& step : journal.steps(run.id).value_or(std::vector<p2pd::StepRecord>()))
      (void)to_json(step).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (const p2pd::Intent& intent : journal.open_intents(run.id).value_or(std::vector<p2pd::Intent>()))
      (void)to_string(intent.kind);
    (void)journal.knows_boot(run.id, "boot");
  }
  for (const p2pd::JournalEvent& event :
       journal.events(0, std::numeric_limits<std::int64_t>::max(), 100).value_or(std::vector<p2pd::JournalEvent>()))
    (void)to_json(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

FUZZ(journal) {
  static const Tree tree;
  const std::filesystem::path state = tree.directory / "state";
  std::filesystem::remove_all(state);
  tree.write("/state/state.db", input);
  if (const auto reader = Journal::open(state, Journal::Access::read)) read_all(*reader);
  auto journal = Journal::open(state, Journal::Access::write);
  if (!journal && journal.error().code == ErrorCode::database_quarantined) {
    require(std::filesystem::exists(state / "state.db.set-aside"), "nothing lies aside");
    require(p2pd::Database::accept_loss(state).has_value(), "the loss cannot be accepted");
    journal = Journal::open(state, Journal::Access::write);
    require(journal.has_value(), "no new journal after a loss");
    require(journal->begin_run({}, {}, {}).has_value(), "a new journal takes no run");
  }
  if (!journal) return;
  read_all(*journal);
  (void)journal->begin_run({}, {}, {});
}
