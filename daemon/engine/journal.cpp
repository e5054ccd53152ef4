// SPDX-License-Identifier: MIT
#include "engine/journal.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/enum_names.hpp"
#include "base/result.hpp"
#include "base/url.hpp"
#include "engine/statement.hpp"

namespace p2pd {
namespace {

constexpr int kSchema = 3;  // 3: plans with a format, which p2pd 0.2 cannot read
constexpr std::string_view kRecords = R"(
CREATE TABLE runs(id INTEGER PRIMARY KEY, plan TEXT, resolved TEXT, state TEXT, rollback TEXT, reboots INT,
                  reboot_from TEXT, reboot_due INT, result TEXT, reason TEXT, started TEXT, ended TEXT);
CREATE TABLE steps(run INT, step TEXT, status TEXT, attempts INT, crashes INT, applied INT, committed INT,
                   applied_boot TEXT, finding TEXT, PRIMARY KEY(run, step));
CREATE TABLE intents(id INTEGER PRIMARY KEY, run INT, kind TEXT, step TEXT, boot_id TEXT, closed INT DEFAULT 0);
)";
constexpr std::string_view kLogs = R"(
CREATE TABLE boots(run INT, boot_id TEXT, PRIMARY KEY(run, boot_id));
CREATE TABLE events(id INTEGER PRIMARY KEY, time TEXT, boot_id TEXT, run INT, step TEXT, type TEXT, text TEXT);
)";

/// Table of schema 1, and its columns in schema 2. Schema 1 stored the values of enumerations as numbers; a number
/// without a name stays, and is an error when it is read.
struct Converted {
  std::string_view table, columns;
};
constexpr Converted kFrom1[] = {
    {"runs",
     // p2pd 0.1 undid all runs, also after a cancel
     "id,plan,resolved,state,CASE failing WHEN 0 THEN CASE state WHEN 'reverting' THEN 'all' ELSE 'own' END WHEN 1 "
     "THEN 'failed' WHEN 2 THEN 'all' ELSE failing END AS "
     "rollback,"
     "reboots,reboot_from,reboot_due,result,reason,started,ended"},
    {"steps",
     "run,step,CASE status WHEN 0 THEN 'waiting' WHEN 1 THEN 'holds' WHEN 2 THEN 'fixed' WHEN 3 THEN 'pending-reboot' "
     "WHEN 4 THEN 'blocked' WHEN 5 THEN 'failed' WHEN 6 THEN 'reverted' ELSE status END AS status,"
     "attempts,crashes,applied,committed,applied_boot,finding"},
    {"intents",
     "id,run,CASE kind WHEN 0 THEN 'fix' WHEN 1 THEN 'hazard' WHEN 2 THEN 'commit' WHEN 3 THEN 'undo' WHEN 4 THEN "
     "'proof' "
     "ELSE kind END AS kind,step,boot_id,closed"},
};

/// Result code in the answer of quick_check about an unreadable page; 0: the page was read, and is damaged.
int code_of_unread_page(std::string_view found) {
  if (found.find("failed to get page") != found.npos)
    return SQLITE_IOERR;  // for an overflow page the answer has no code
  constexpr std::string_view kMark = "error code=";
  const std::size_t at = found.find(kMark);
  int code = 0;
  if (at != found.npos) std::from_chars(found.data() + at + kMark.size(), found.data() + found.size(), code);
  return code;
}

Result<void> execute(sqlite3* db, const std::string& sql, std::string_view doing) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return sqlite_error(db, doing);
  return {};
}

/// Reason why the database is damaged or has a newer schema; empty if it is neither. Any other failure to read it is an
/// Error.
Result<std::string> database_defect(sqlite3* db) {
  const auto unread = [db](const Error& error) -> Result<std::string> {
    if (is_damage(sqlite3_errcode(db))) return std::string(sqlite3_errmsg(db));
    return Failure(error);
  };
  Statement version(db, "PRAGMA user_version");
  if (const auto row = version.step(); !row) return unread(row.error());
  if (const int schema = version.number(0); schema < 0 || schema > kSchema)
    return fmt::format("its schema is {}, and the newest that this program knows is {}", schema, kSchema);
  Statement check(db, "PRAGMA quick_check(1)");
  if (const auto row = check.step(); !row) return unread(row.error());
  std::string found = check.text(0);
  std::ranges::replace(found, '\n', ' ');
  if (const int code = code_of_unread_page(found); code != 0 && !is_damage(code))
    return sqlite_error(code, "cannot be checked", fmt::format("{} ({})", sqlite3_errstr(code), found));
  return found == "ok" ? "" : found;
}

/// Schema of the database; 0: it has no tables yet.
Result<int> schema_of(sqlite3* db) {
  Statement version(db, "PRAGMA user_version");
  TRY(version.step());
  return version.number(0);
}

/// Creates the tables, or rewrites those of an earlier schema, in one transaction.
Result<void> make_current(sqlite3* db) {
  const int schema = TRY(schema_of(db));
  if (schema == kSchema) return {};
  std::string sql = "BEGIN IMMEDIATE;";
  if (schema == 1)
    for (const auto& [table, columns] : kFrom1) sql += fmt::format("ALTER TABLE {0} RENAME TO {0}_1;", table);
  if (schema < 2) sql += kRecords;
  if (schema == 0) sql += kLogs;
  if (schema == 1)
    for (const auto& [table, columns] : kFrom1)
      sql += fmt::format("INSERT INTO {0} SELECT {1} FROM {0}_1;DROP TABLE {0}_1;", table, columns);
  sql += fmt::format("PRAGMA user_version={};COMMIT", kSchema);
  return execute(db, sql, schema == 0 ? "cannot create its tables" : "cannot rewrite its tables");
}

/// Makes this connection, which may only read, see the tables of an earlier schema as current ones.
Result<void> view_as_current(sqlite3* db) {
  if (TRY(schema_of(db)) != 1) return {};
  std::string sql = "PRAGMA temp_store=MEMORY;";
  for (const auto& [table, columns] : kFrom1)
    sql += fmt::format("CREATE TEMP VIEW {0} AS SELECT {1} FROM main.{0};", table, columns);
  return execute(db, sql, "cannot read its tables");
}

namespace fs = std::filesystem;

constexpr int kEvents = 20'000;  // newest events of all runs: a run that is retried endlessly adds events endlessly
constexpr std::string_view kStatus[] = {"waiting", "holds", "fixed", "pending-reboot", "blocked", "failed", "reverted"};
constexpr std::string_view kRollback[] = {"own", "failed", "all"};
constexpr std::string_view kIntent[] = {"fix", "hazard", "commit", "undo", "proof"};

/// True for the codes of a reader after the first writer was killed while it created the database: no -shm yet, or a
/// hot journal.
bool is_unfinished(int code) { return code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PROTOCOL; }

Failure quarantined_error(const fs::path& aside, std::string_view why) {
  return fail(
      ErrorCode::database_quarantined,
      fmt::format("the state database is unusable ({}); it is kept at {}, and p2pd only checks", why, aside.string()),
      "inspect it; then \"p2pctl apply --accept-state-loss\" continues without it. \"p2pctl revert\" still undoes "
      "every recorded change");
}

/// Column of an enumeration's words.
struct Words {
  std::string_view table, column;
  bool (*knows)(std::string_view word);
};
constexpr Words kWords[] = {
    {"runs", "state", [](std::string_view word) { return run_state(word).has_value(); }},
    {"runs", "rollback", [](std::string_view word) { return rollback_scope(word).has_value(); }},
    {"steps", "status", [](std::string_view word) { return step_status(word).has_value(); }},
    {"intents", "kind", [](std::string_view word) { return intent_kind(word).has_value(); }}};

/// Word that this version does not know, in the words of an operator; empty: none.
Result<std::string> unknown_word(sqlite3* db) {
  for (const auto& [table, column, knows] : kWords) {
    const std::string query = fmt::format("SELECT DISTINCT {} FROM {}", column, table);
    Statement words(db, query.c_str());
    while (TRY(words.step()))
      if (const std::string word = words.text(0); !knows(word))
        return fmt::format("\"{}\" is not a {} of its {}", word, column, table);
  }
  return std::string();
}

/// Renames an unusable database, and returns the Error about it.
Failure quarantine(const fs::path& directory, std::string_view why) {
  std::error_code ignored;
  fs::rename(directory / "state.db", directory / "state.db.set-aside", ignored);
  fs::rename(directory / "state.db-wal", directory / "state.db.set-aside-wal", ignored);
  fs::remove(directory / "state.db-shm", ignored);
  return quarantined_error(directory / "state.db.set-aside", why);
}

using Database = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;

Result<Database> open_database(const std::string& name, int flags) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(name.c_str(), &raw, flags, nullptr);
  Database db(raw, sqlite3_close_v2);
  if (opened != SQLITE_OK) return sqlite_error(raw, "cannot open " + name);
  sqlite3_busy_timeout(raw, 5000);
  return db;
}

/// Name of a file beside the database that has data of it; empty: none.
std::string beside(const fs::path& file) {
  for (const char* suffix : {"-wal", "-journal"}) {
    std::error_code error;
    const auto size = fs::file_size(file.string() + suffix, error);
    if (error ? error != std::errc::no_such_file_or_directory : size > 0) return file.string() + suffix;
  }
  return {};
}

/// URI under which SQLite reads a file without locks and without files beside it.
std::string immutable_uri(const fs::path& file) {
  std::string uri = "file:";
  for (const char c : file.string())
    uri += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02x}", static_cast<int>(c)) : std::string(1, c);
  return uri + "?immutable=1";
}

/// Opens an intact database for reading. A program of root such as sqlite3(1) removes the WAL and its index when it
/// closes the database, and a reader without write permission cannot make them: it then reads the file alone, which is
/// complete. A writer that starts meanwhile puts its pages into a new WAL.
Result<Database> open_to_read(const fs::path& file) {
  Database db = TRY(open_database(file, SQLITE_OPEN_READONLY));
  Result<std::string> found = database_defect(db.get());
  if (const int code = sqlite3_errcode(db.get()); !found && is_unfinished(code)) {
    const std::string other = beside(file);
    for (const std::string& needed : {other, file.string() + "-shm"})
      if (!needed.empty() && ::access(needed.c_str(), R_OK) != 0 && errno == EACCES)
        return fail(ErrorCode::denied, "the state database is not readable: " + needed,
                    "\"sudo systemd-tmpfiles --create p2pd.conf\" sets its owner and mode; so does the next start of "
                    "the worker");
    if (!other.empty() || code == SQLITE_PROTOCOL)
      return fail(ErrorCode::busy, "the state database is incomplete: the process that created it was stopped",
                  "\"p2pctl apply\" completes it");
    db = TRY(open_database(immutable_uri(file), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
    found = database_defect(db.get());
  }
  const std::string why = TRY(found);
  if (!why.empty()) return fail(ErrorCode::database_quarantined, "the state database is unusable: " + why);
  if (TRY(schema_of(db.get())) == 0) return fail(ErrorCode::not_found, "nothing has run on this machine yet");
  TRY(view_as_current(db.get()));
  return db;
}

std::string dumped(const nlohmann::json& finding) {
  return finding.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string_view to_string(StepStatus status) { return kStatus[static_cast<std::size_t>(status)]; }
std::optional<StepStatus> step_status(std::string_view name) { return value_called<StepStatus>(kStatus, name); }
std::string_view to_string(Rollback scope) { return kRollback[static_cast<std::size_t>(scope)]; }
std::optional<Rollback> rollback_scope(std::string_view name) { return value_called<Rollback>(kRollback, name); }
std::string_view to_string(Intent::Kind kind) { return kIntent[static_cast<std::size_t>(kind)]; }
std::optional<Intent::Kind> intent_kind(std::string_view name) { return value_called<Intent::Kind>(kIntent, name); }

void Journal::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

Result<Journal> Journal::open(const fs::path& directory, Access access) {
  const fs::path file = directory / "state.db";
  const fs::path aside = directory / "state.db.set-aside";
  std::error_code ignored;
  if (access == Access::write) take_back(directory);
  if (fs::exists(aside, ignored)) return quarantined_error(aside, "found so at an earlier start");
  if (fs::is_directory(file, ignored))
    return fail(ErrorCode::invalid, fmt::format("{} is a directory; expected the state database", file.string()),
                "move it away");
  if (access == Access::read) {
    if (fs::exists(file, ignored)) return Journal(TRY(open_to_read(file)).release());
    if (ignored) return fail_errno("cannot read directory " + directory.string(), ignored.value());
    return fail(ErrorCode::not_found, "nothing has run on this machine yet");
  }
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return fail_errno("cannot make the state directory " + directory.string(), error.value());
  Journal journal(TRY(open_database(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)).release());
  sqlite3* const raw = journal.db_.get();
  const std::string why = TRY(database_defect(raw));
  if (!why.empty()) {
    journal.db_.reset();
    return quarantine(directory, why);
  }
  int persist = 1;  // -wal and -shm stay, so that a reader without write permission can always open
  sqlite3_file_control(raw, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
  TRY(Statement(raw, "PRAGMA journal_mode=WAL").run());
  TRY(Statement(raw, "PRAGMA synchronous=FULL").run());
  TRY(make_current(raw));
  if (const std::string word = TRY(unknown_word(raw)); !word.empty()) {
    journal.db_.reset();
    return quarantine(directory, word);
  }
  return journal;
}

void Journal::take_back(const fs::path& directory) {
  std::error_code ignored;
  const fs::path file = directory / "state.db", aside = directory / "state.db.set-aside";
  if (!fs::exists(aside, ignored) || fs::exists(file, ignored)) return;
  {
    const auto db = open_database(aside, SQLITE_OPEN_READONLY);
    if (!db || database_defect(db->get()).value_or("unknown") != "" || schema_of(db->get()).value_or(0) < 2 ||
        unknown_word(db->get()).value_or("unknown") != "")
      return;
  }
  fs::rename(directory / "state.db.set-aside-wal", directory / "state.db-wal", ignored);
  fs::rename(aside, file, ignored);
}

Result<void> Journal::accept_loss(const fs::path& directory) {
  std::error_code error;
  const fs::path aside = directory / "state.db.set-aside";
  if (!fs::exists(aside, error)) return {};
  int number = 1;
  while (fs::exists(directory / fmt::format("state.db.lost-{}", number), error)) ++number;
  fs::rename(aside, directory / fmt::format("state.db.lost-{}", number), error);
  if (error) return fail_errno("cannot rename " + aside.string(), error.value());
  return {};
}

Result<void> Journal::transaction(const std::function<Result<void>()>& body) {
  TRY(Statement(db_.get(), "BEGIN IMMEDIATE").run());
  Result<void> done = body();
  if (done) done = Statement(db_.get(), "COMMIT").run();
  if (!done) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<void> Journal::put_run(const Run& run) {
  Statement s(db_.get(), "INSERT OR REPLACE INTO runs VALUES(?,?,?,?,?,?,?,?,?,?,?,?)");
  return s
      .bind(run.id, run.plan, without_user_info(run.resolved), to_string(run.state), to_string(run.rollback),
            run.reboots, run.reboot_from, run.reboot_due, run.result, without_user_info(run.reason), run.started,
            run.ended)
      .run();
}

Result<void> Journal::put_step(std::int64_t run, const StepRecord& step) {
  Statement s(db_.get(), "INSERT OR REPLACE INTO steps VALUES(?,?,?,?,?,?,?,?,?)");
  std::string finding = without_user_info(dumped(step.finding));
  if (finding.size() > kFindingLimit) finding = without_user_info(dumped(verdict_of(step.finding)));
  return s
      .bind(run, step.step, to_string(step.status), step.attempts, step.crashes, step.applied, step.committed,
            step.applied_boot, finding)
      .run();
}

Result<void> Journal::put_event(const JournalEvent& event) {
  Statement s(db_.get(), "INSERT INTO events(time,boot_id,run,step,type,text) VALUES(?,?,?,?,?,?)");
  TRY(s.bind(event.time, event.boot_id, event.run, event.step, event.type, without_user_info(event.text)).run());
  return Statement(db_.get(), "DELETE FROM events WHERE id<=last_insert_rowid()-?").bind(kEvents).run();
}

Result<Run> Journal::begin_run(const Run& run, const ChangedSteps& in_place, const JournalEvent& event) {
  Run begun = run;
  TRY(transaction([&]() -> Result<void> {
    Statement last(db_.get(), "SELECT max(coalesce(max(id),0),?)+1 FROM runs");
    TRY(last.bind(run.id).step());
    begun.id = last.integer(0);
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

/// Sets `applied` of every run except the open one from the undo records, which are what revert undoes.
Result<void> Journal::put_in_place(const Run& run, const ChangedSteps& in_place) {
  TRY(Statement(db_.get(), "UPDATE steps SET applied=0 WHERE applied<>0 AND run<>?")
          .bind(is_open(run.state) ? run.id : 0)
          .run());
  for (const auto& [id, step] : in_place) {
    TRY(Statement(db_.get(), "INSERT OR IGNORE INTO steps VALUES(?,?,?,0,0,1,0,'','{}')")
            .bind(id, step, to_string(StepStatus::fixed))
            .run());
    TRY(Statement(db_.get(), "UPDATE steps SET applied=1 WHERE run=? AND step=?").bind(id, step).run());
  }
  return {};
}

Result<std::int64_t> Journal::open_intent(const Run& run, const Intent& intent, const JournalEvent& event) {
  TRY(transaction([&]() -> Result<void> {
    TRY(put_event(event));
    Statement s(db_.get(), "INSERT INTO intents(run,kind,step,boot_id) VALUES(?,?,?,?)");
    return s.bind(run.id, to_string(intent.kind), intent.step, intent.boot_id).run();
  }));
  Statement last(db_.get(), "SELECT max(id) FROM intents");
  TRY(last.step());
  return last.integer(0);
}

Result<void> Journal::close_intent(std::int64_t id, const Run& run, const StepRecord& step, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(Statement(db_.get(), "DELETE FROM intents WHERE id=?").bind(id).run());
    TRY(put_run(run));
    TRY(put_step(run.id, step));
    return put_event(event);
  });
}

Result<void> Journal::add_boot(const Run& run, std::string_view boot_id, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(Statement(db_.get(), "INSERT OR IGNORE INTO boots VALUES(?,?)").bind(run.id, boot_id).run());
    TRY(put_run(run));
    return put_event(event);
  });
}

}  // namespace p2pd
