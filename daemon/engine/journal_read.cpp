// SPDX-License-Identifier: MIT
// Queries of the journal, and its rows as JSON.
// Size limit of the journal: each boot adds a proof run, for the lifetime of the machine.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/journal.hpp"
#include "engine/statement.hpp"

namespace p2pd {
namespace {

/// Value of an enumeration from its name in a column.
template <class Enum>
Result<Enum> known(const Statement& row, int column, std::optional<Enum> (*value_called)(std::string_view)) {
  const std::string name = row.text(column);
  if (const std::optional<Enum> value = value_called(name)) return *value;
  return fail(ErrorCode::invalid, fmt::format("state database: \"{}\" is not a value of its column", name),
              "move state.db away; \"p2pctl revert\" still undoes every recorded change");
}

Result<Run> read_run(const Statement& row) {
  Run run;
  run.id = row.integer(0);
  run.plan = row.text(1);
  run.resolved = row.text(2);
  run.state = TRY(known(row, 3, run_state));
  run.rollback = TRY(known(row, 4, rollback_scope));
  run.reboots = row.number(5);
  run.reboot_from = row.text(6);
  run.reboot_due = row.number(7) != 0;
  run.result = row.text(8);
  run.reason = row.text(9);
  run.started = row.text(10);
  run.ended = row.text(11);
  return run;
}

}  // namespace

std::string iso_time(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

Result<std::vector<RunChanges>> Journal::stays(const Run& run) const {
  Statement s(db_.get(),
              "SELECT s.run,coalesce(r.plan,''),s.step FROM steps s LEFT JOIN runs r ON r.id=s.run "
              "WHERE s.applied<>0 AND s.run<>? ORDER BY s.run,s.step");
  s.bind(is_open(run.state) ? run.id : 0);
  std::vector<RunChanges> all;
  while (TRY(s.step())) {
    if (all.empty() || all.back().run != s.integer(0)) all.push_back({s.integer(0), s.text(1), {}});
    all.back().steps.push_back(s.text(2));
  }
  return all;
}

Result<std::vector<Run>> Journal::runs(int limit, std::int64_t before) const {
  Statement s(db_.get(), "SELECT * FROM runs WHERE ?=0 OR id<? ORDER BY id DESC LIMIT ?");
  s.bind(before, before, limit);
  std::vector<Run> runs;
  while (TRY(s.step())) runs.push_back(TRY(read_run(s)));
  return runs;
}

Result<std::optional<Run>> Journal::last_run() const {
  std::vector<Run> found = TRY(runs(1));
  if (found.empty()) return std::nullopt;
  found.front().stays = TRY(stays(found.front()));
  return std::move(found.front());
}

Result<std::optional<Run>> Journal::newest_proven(std::string_view besides) const {
  Statement s(db_.get(), "SELECT * FROM runs WHERE result IN ('ready','limited') AND plan<>? ORDER BY id DESC LIMIT 1");
  if (!TRY(s.bind(besides).step())) return std::nullopt;
  return read_run(s);
}

Result<std::vector<Run>> Journal::runs_in_place() const {
  Statement s(db_.get(),
              "SELECT * FROM runs r WHERE result='reverted' OR EXISTS"
              "(SELECT 1 FROM steps s WHERE s.run=r.id AND s.applied<>0) ORDER BY id DESC");
  std::vector<Run> runs;
  while (TRY(s.step())) runs.push_back(TRY(read_run(s)));
  return runs;
}

Result<std::vector<StepRecord>> Journal::steps(std::int64_t run) const {
  Statement s(db_.get(),
              "SELECT step,status,attempts,crashes,applied,committed,applied_boot,"
              "CASE WHEN length(finding)>? THEN '{}' ELSE finding END FROM steps WHERE run=?");
  s.bind(kFindingLimit, run);
  std::vector<StepRecord> steps;
  while (TRY(s.step())) {
    StepRecord step;
    step.step = s.text(0);
    step.status = TRY(known(s, 1, step_status));
    step.attempts = s.number(2);
    step.crashes = s.number(3);
    step.applied = s.number(4) != 0;
    step.committed = s.number(5) != 0;
    step.applied_boot = s.text(6);
    step.finding = parse_json(s.text(7));
    steps.push_back(std::move(step));
  }
  return steps;
}

Result<std::vector<Intent>> Journal::open_intents(std::int64_t run) const {
  Statement s(db_.get(), "SELECT id,kind,step,boot_id FROM intents WHERE run=? AND closed=0 ORDER BY id");
  s.bind(run);
  std::vector<Intent> intents;
  while (TRY(s.step())) {
    const auto kind = TRY(known(s, 1, intent_kind));
    intents.push_back({s.integer(0), kind, s.text(2), s.text(3)});
  }
  return intents;
}

Result<bool> Journal::knows_boot(std::int64_t run, std::string_view boot_id) const {
  Statement s(db_.get(), "SELECT 1 FROM boots WHERE run=? AND boot_id=?");
  return s.bind(run, boot_id).step();
}

Result<std::vector<JournalEvent>> Journal::events(std::int64_t first, std::int64_t last, int limit) const {
  Statement s(db_.get(),
              "SELECT time,boot_id,run,step,type,text FROM (SELECT * FROM events WHERE run BETWEEN ? AND ? "
              "ORDER BY id DESC LIMIT ?) ORDER BY id");
  s.bind(first, last, limit);
  std::vector<JournalEvent> events;
  while (TRY(s.step())) events.push_back({s.text(0), s.text(1), s.integer(2), s.text(3), s.text(4), s.text(5)});
  return events;
}

nlohmann::json verdict_of(const nlohmann::json& finding) {
  nlohmann::json kept = finding.is_object() ? finding : nlohmann::json::object();
  for (const char* key : {"danger", "evidence", "facts"}) kept.erase(key);
  return kept;
}

nlohmann::json to_json(const RunChanges& changes) {
  return {{"run", changes.run}, {"plan", changes.plan}, {"steps", changes.steps}};
}

nlohmann::json to_json(const Run& run) {
  return {{"id", run.id},         {"plan", run.plan},     {"state", to_string(run.state)}, {"reboots", run.reboots},
          {"result", run.result}, {"reason", run.reason}, {"started", run.started},        {"ended", run.ended}};
}

nlohmann::json to_json(const StepRecord& step) {
  return {{"step", step.step},       {"status", to_string(step.status)}, {"attempts", step.attempts},
          {"crashes", step.crashes}, {"committed", step.committed},      {"finding", step.finding}};
}

nlohmann::json to_json(const JournalEvent& event) {
  return {{"time", event.time}, {"boot_id", event.boot_id}, {"run", event.run},
          {"step", event.step}, {"type", event.type},       {"text", event.text}};
}

namespace {

constexpr int kFull = 30;    // newest runs that keep facts, evidence and plan
constexpr int kKnown = 500;  // newest runs that are kept

/// Runs that are kept at any age: their changes are in place, or the next proof needs them.
constexpr std::string_view kNeeded =
    "(SELECT run FROM steps WHERE applied<>0 UNION "
    "SELECT max(id) FROM runs WHERE result IN ('ready','limited','reverted') GROUP BY plan,result)";

/// Result of verdict_of() for a finding, computed by SQLite: a journal may hold megabytes of findings.
constexpr std::string_view kVerdict =
    "CASE WHEN json_valid(finding) THEN json_remove(finding,'$.danger','$.evidence','$.facts') ELSE '{}' END";
/// True if a finding is already reduced: the keys of an object are sorted.
constexpr std::string_view kPruned = "(finding='{}' OR finding GLOB '{\"fi*' OR finding GLOB '{\"[in]*')";

std::string newest(int count) { return fmt::format("(SELECT id FROM runs ORDER BY id DESC LIMIT {})", count); }

}  // namespace

Result<void> Journal::prune() {
  const auto run = [&](const std::string& sql) { return Statement(db_.get(), sql.c_str()).run(); };
  TRY(run(fmt::format("UPDATE steps SET finding={} WHERE run NOT IN {} AND NOT {}", kVerdict, newest(kFull), kPruned)));
  TRY(run(fmt::format("UPDATE runs SET resolved='' WHERE resolved<>'' AND id NOT IN {} AND id NOT IN {}", newest(kFull),
                      kNeeded)));
  TRY(run(fmt::format("DELETE FROM runs WHERE id NOT IN {} AND id NOT IN {}", newest(kKnown), kNeeded)));
  TRY(run("DELETE FROM steps WHERE applied=0 AND run NOT IN (SELECT id FROM runs)"));
  for (const char* table : {"intents", "boots", "events"})
    TRY(run(fmt::format("DELETE FROM {} WHERE run NOT IN (SELECT id FROM runs)", table)));
  return {};
}

}  // namespace p2pd
