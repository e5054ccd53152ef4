// SPDX-License-Identifier: MIT
#include "engine/journal.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/enum_names.hpp"
#include "base/url.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kStatus[] = {"waiting", "holds", "fixed", "pending-reboot", "blocked", "failed", "reverted"};
constexpr std::string_view kRollback[] = {"own", "failed", "all"};
constexpr std::string_view kIntent[] = {"fix", "hazard", "commit", "undo", "proof"};

// Limits of the size: each boot adds a proof run, for the lifetime of the machine.
constexpr int kFull = 30;        // newest runs that keep facts, evidence and plan
constexpr int kKnown = 500;      // newest runs that are kept
constexpr int kEvents = 20'000;  // newest events of all runs: a run that is retried endlessly adds events endlessly

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

std::string dumped(const nlohmann::json& finding) {
  return finding.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Readers of rows: the columns in the order of their table, or of the query.

Run run_in(Columns& row) {
  return {.id = row.integer(),
          .plan = row.text(),
          .resolved = row.text(),
          .state = row.word(run_state),
          .rollback = row.word(rollback_scope),
          .reboots = row.number(),
          .reboot_from = row.text(),
          .reboot_due = row.flag(),
          .result = row.text(),
          .reason = row.text(),
          .started = row.text(),
          .ended = row.text()};
}

StepRecord step_in(Columns& row) {
  return {.step = row.text(),
          .status = row.word(step_status),
          .attempts = row.number(),
          .crashes = row.number(),
          .applied = row.flag(),
          .committed = row.flag(),
          .applied_boot = row.text(),
          .finding = parse_json(row.text())};
}

Intent intent_in(Columns& row) { return {row.integer(), row.word(intent_kind), row.text(), row.text()}; }

JournalEvent event_in(Columns& row) {
  return {row.text(), row.text(), row.integer(), row.text(), row.text(), row.text()};
}

}  // namespace

std::string_view to_string(StepStatus status) { return kStatus[static_cast<std::size_t>(status)]; }
std::optional<StepStatus> step_status(std::string_view name) { return value_called<StepStatus>(kStatus, name); }
std::string_view to_string(Rollback scope) { return kRollback[static_cast<std::size_t>(scope)]; }
std::optional<Rollback> rollback_scope(std::string_view name) { return value_called<Rollback>(kRollback, name); }
std::string_view to_string(Intent::Kind kind) { return kIntent[static_cast<std::size_t>(kind)]; }
std::optional<Intent::Kind> intent_kind(std::string_view name) { return value_called<Intent::Kind>(kIntent, name); }

std::string iso_time(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

Result<void> Journal::transaction(const std::function<Result<void>()>& body) {
  TRY(db_.run("BEGIN IMMEDIATE"));
  Result<void> done = body();
  if (done) done = db_.run("COMMIT");
  if (!done) (void)db_.run("ROLLBACK").has_value();
  return done;
}

Result<void> Journal::put_run(const Run& run) {
  return db_.run(
      "INSERT OR REPLACE INTO runs VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
      {run.id, run.plan, without_user_info(run.resolved), to_string(run.state), to_string(run.rollback), run.reboots,
       run.reboot_from, run.reboot_due, run.result, without_user_info(run.reason), run.started, run.ended});
}

Result<void> Journal::put_step(std::int64_t run, const StepRecord& step) {
  std::string finding = without_user_info(dumped(step.finding));
  if (finding.size() > kFindingLimit) finding = without_user_info(dumped(verdict_of(step.finding)));
  return db_.run("INSERT OR REPLACE INTO steps VALUES(?,?,?,?,?,?,?,?,?)",
                 {run, step.step, to_string(step.status), step.attempts, step.crashes, step.applied, step.committed,
                  step.applied_boot, finding});
}

Result<void> Journal::put_event(const JournalEvent& event) {
  TRY(db_.run("INSERT INTO events(time,boot_id,run,step,type,text) VALUES(?,?,?,?,?,?)",
              {event.time, event.boot_id, event.run, event.step, event.type, without_user_info(event.text)}));
  return db_.run("DELETE FROM events WHERE id<=last_insert_rowid()-?", {kEvents});
}

/// Sets `applied` of every run except the open one from the undo records, which are what revert undoes.
Result<void> Journal::put_in_place(const Run& run, const ChangedSteps& in_place) {
  TRY(db_.run("UPDATE steps SET applied=0 WHERE applied<>0 AND run<>?", {is_open(run.state) ? run.id : 0}));
  for (const auto& [id, step] : in_place) {
    TRY(db_.run("INSERT OR IGNORE INTO steps VALUES(?,?,?,0,0,1,0,'','{}')", {id, step, to_string(StepStatus::fixed)}));
    TRY(db_.run("UPDATE steps SET applied=1 WHERE run=? AND step=?", {id, step}));
  }
  return {};
}

Result<void> Journal::prune() {
  TRY(db_.run(
      fmt::format("UPDATE steps SET finding={} WHERE run NOT IN {} AND NOT {}", kVerdict, newest(kFull), kPruned)));
  TRY(db_.run(fmt::format("UPDATE runs SET resolved='' WHERE resolved<>'' AND id NOT IN {} AND id NOT IN {}",
                          newest(kFull), kNeeded)));
  TRY(db_.run(fmt::format("DELETE FROM runs WHERE id NOT IN {} AND id NOT IN {}", newest(kKnown), kNeeded)));
  TRY(db_.run("DELETE FROM steps WHERE applied=0 AND run NOT IN (SELECT id FROM runs)"));
  for (const char* table : {"intents", "boots", "events"})
    TRY(db_.run(fmt::format("DELETE FROM {} WHERE run NOT IN (SELECT id FROM runs)", table)));
  return {};
}

Result<Run> Journal::begin_run(const Run& run, const ChangedSteps& in_place, const JournalEvent& event) {
  Run begun = run;
  TRY(transaction([&]() -> Result<void> {
    begun.id = TRY(db_.number("SELECT max(coalesce(max(id),0),?)+1 FROM runs", {run.id}));
    JournalEvent first = event;
    first.run = begun.id;
    TRY(put_run(begun));
    TRY(put_in_place(begun, in_place));
    TRY(prune());
    return put_event(first);
  }));
  begun.stays = TRY(stays(begun));
  return begun;
}

Result<void> Journal::save(const Run& run, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(put_run(run));
    return put_event(event);
  });
}

Result<void> Journal::save(const Run& run, const std::vector<StepRecord>& steps, const ChangedSteps& in_place,
                           const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(put_run(run));
    for (const StepRecord& step : steps) TRY(put_step(run.id, step));
    TRY(put_in_place(run, in_place));
    return put_event(event);
  });
}

Result<std::int64_t> Journal::open_intent(const Run& run, const Intent& intent, const JournalEvent& event) {
  TRY(transaction([&]() -> Result<void> {
    TRY(put_event(event));
    return db_.run("INSERT INTO intents(run,kind,step,boot_id) VALUES(?,?,?,?)",
                   {run.id, to_string(intent.kind), intent.step, intent.boot_id});
  }));
  return db_.number("SELECT max(id) FROM intents");
}

Result<void> Journal::close_intent(std::int64_t id, const Run& run, const StepRecord& step, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(db_.run("DELETE FROM intents WHERE id=?", {id}));
    TRY(put_run(run));
    TRY(put_step(run.id, step));
    return put_event(event);
  });
}

Result<void> Journal::add_boot(const Run& run, std::string_view boot_id, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(db_.run("INSERT OR IGNORE INTO boots VALUES(?,?)", {run.id, boot_id}));
    TRY(put_run(run));
    return put_event(event);
  });
}

Result<std::vector<RunChanges>> Journal::stays(const Run& run) const {
  std::vector<RunChanges> all;
  TRY(
      db_.run("SELECT s.run,coalesce(r.plan,''),s.step FROM steps s LEFT JOIN runs r ON r.id=s.run "
              "WHERE s.applied<>0 AND s.run<>? ORDER BY s.run,s.step",
              {is_open(run.state) ? run.id : 0}, [&](Columns& row) {
                RunChanges change{row.integer(), row.text(), {}};
                if (all.empty() || all.back().run != change.run) all.push_back(std::move(change));
                all.back().steps.push_back(row.text());
              }));
  return all;
}

Result<std::vector<Run>> Journal::runs(int limit, std::int64_t before) const {
  return db_.rows("SELECT * FROM runs WHERE ?=0 OR id<? ORDER BY id DESC LIMIT ?", {before, before, limit}, run_in);
}

Result<std::optional<Run>> Journal::last_run() const {
  std::vector<Run> found = TRY(runs(1));
  if (found.empty()) return std::nullopt;
  found.front().stays = TRY(stays(found.front()));
  return std::move(found.front());
}

Result<std::optional<Run>> Journal::newest_proven(std::string_view besides) const {
  std::vector<Run> found =
      TRY(db_.rows("SELECT * FROM runs WHERE result IN ('ready','limited') AND plan<>? ORDER BY id DESC LIMIT 1",
                   {besides}, run_in));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

Result<std::vector<Run>> Journal::runs_in_place() const {
  return db_.rows(
      "SELECT * FROM runs r WHERE result='reverted' OR EXISTS"
      "(SELECT 1 FROM steps s WHERE s.run=r.id AND s.applied<>0) ORDER BY id DESC",
      {}, run_in);
}

Result<std::vector<StepRecord>> Journal::steps(std::int64_t run) const {
  return db_.rows(
      "SELECT step,status,attempts,crashes,applied,committed,applied_boot,"
      "CASE WHEN length(finding)>? THEN '{}' ELSE finding END FROM steps WHERE run=?",
      {static_cast<std::int64_t>(kFindingLimit), run}, step_in);
}

Result<std::vector<Intent>> Journal::open_intents(std::int64_t run) const {
  return db_.rows("SELECT id,kind,step,boot_id FROM intents WHERE run=? AND closed=0 ORDER BY id", {run}, intent_in);
}

Result<bool> Journal::knows_boot(std::int64_t run, std::string_view boot_id) const {
  return TRY(db_.number("SELECT 1 FROM boots WHERE run=? AND boot_id=?", {run, boot_id})) == 1;
}

Result<std::vector<JournalEvent>> Journal::events(std::int64_t first, std::int64_t last, int limit) const {
  return db_.rows(
      "SELECT time,boot_id,run,step,type,text FROM (SELECT * FROM events WHERE run BETWEEN ? AND ? "
      "ORDER BY id DESC LIMIT ?) ORDER BY id",
      {first, last, limit}, event_in);
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

}  // namespace p2pd
