// SPDX-License-Identifier: MIT
#include "engine/journal.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

namespace p2pd {
namespace {

namespace fs = std::filesystem;

constexpr int kSchema = 1;
constexpr const char* kTables = R"(
CREATE TABLE runs(id INTEGER PRIMARY KEY, plan TEXT, resolved TEXT, state TEXT, failing INT, reboots INT,
                  reboot_from TEXT, reboot_due INT, result TEXT, reason TEXT, started TEXT, ended TEXT);
CREATE TABLE steps(run INT, step TEXT, status INT, attempts INT, crashes INT, applied INT, committed INT,
                   applied_boot TEXT, finding TEXT, PRIMARY KEY(run, step));
CREATE TABLE intents(id INTEGER PRIMARY KEY, run INT, kind INT, step TEXT, boot_id TEXT, closed INT DEFAULT 0);
CREATE TABLE boots(run INT, boot_id TEXT, PRIMARY KEY(run, boot_id));
CREATE TABLE events(id INTEGER PRIMARY KEY, time TEXT, boot_id TEXT, run INT, step TEXT, type TEXT, text TEXT);
)";

constexpr std::string_view kStatus[] = {"waiting", "holds", "fixed", "pending-reboot", "blocked", "failed", "reverted"};
constexpr std::string_view kIntent[] = {"fix", "hazard", "commit", "undo", "proof"};

Failure fail_sqlite(sqlite3* db, std::string_view doing) {
  const int code = sqlite3_errcode(db);
  const ErrorCode kind = code == SQLITE_BUSY ? ErrorCode::busy : ErrorCode::io;
  const bool full = code == SQLITE_FULL || (code == SQLITE_IOERR && sqlite3_system_errno(db) == ENOSPC);
  std::string next;
  if (full) next = "free space on the file system of the state directory, then start again";
  if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN) next = "make the state directory writable, or run as root";
  const char* why = full ? "no space left on its file system" : sqlite3_errmsg(db);
  return fail(kind, fmt::format("state database: {}: {}", doing, why), std::move(next));
}

/// A prepared statement; values are bound in order.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db), sql_(sql) { sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  template <class... Values>
  Statement& bind(const Values&... values) {
    (bind_one(values), ...);
    return *this;
  }
  /// True when there is a row.
  Result<bool> step() {
    if (statement_ == nullptr) return fail_sqlite(db_, sql_);
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return fail_sqlite(db_, sql_);
  }
  Result<void> run() {
    TRY(step());
    return {};
  }
  std::string text(int column) const {
    const auto* bytes = sqlite3_column_text(statement_, column);
    return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  int number(int column) const { return sqlite3_column_int(statement_, column); }

 private:
  void bind_one(std::string_view value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
  }
  template <std::integral T>
  void bind_one(T value) {
    sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value));
  }

  sqlite3* db_;
  const char* sql_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

/// A number of the database as one of an enumeration's `count` values.
template <class Enum>
Result<Enum> known(int number, std::size_t count) {
  if (number >= 0 && static_cast<std::size_t>(number) < count) return static_cast<Enum>(number);
  return fail(ErrorCode::invalid, fmt::format("state database: {} is not a value of its column", number),
              "move state.db away; \"p2pctl revert\" still undoes every recorded change");
}

/// Why the database cannot be used as it is; empty when it can.
Result<std::string> defect(sqlite3* db) {
  Statement version(db, "PRAGMA user_version");
  const auto row = version.step();
  const int code = sqlite3_errcode(db);
  if (!row && (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)) return std::string(sqlite3_errmsg(db));
  if (!row) return Failure(row.error());
  if (version.number(0) > kSchema)
    return fmt::format("schema {} is newer than this program's {}", version.number(0), kSchema);
  Statement check(db, "PRAGMA quick_check(1)");
  const auto verdict = check.step();
  if (!verdict) return std::string(sqlite3_errmsg(db));
  std::string found = check.text(0);
  std::replace(found.begin(), found.end(), '\n', ' ');
  return found == "ok" ? "" : found;
}

/// What a reader meets when the first writer was killed while it made the database: no -shm yet, or a hot journal.
bool is_unfinished(int code) { return code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PROTOCOL; }

Failure set_aside_error(const fs::path& aside, std::string_view why) {
  return fail(ErrorCode::set_aside,
              fmt::format("the state database is unusable ({}); it lies at {}, and p2pd only checks", why, aside.string()),
              "look at it; then \"p2pctl apply --accept-state-loss\" goes on without it. \"p2pctl revert\" still undoes "
              "every recorded change");
}

Run read_run(const Statement& row) {
  Run run;
  run.id = row.integer(0);
  run.plan = row.text(1);
  run.resolved = row.text(2);
  run.state = run_state(row.text(3)).value_or(RunState::failed);
  run.failing = row.number(4) != 0;
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

std::string_view to_string(StepStatus status) { return kStatus[static_cast<std::size_t>(status)]; }
std::string_view to_string(Intent::Kind kind) { return kIntent[static_cast<std::size_t>(kind)]; }

void Journal::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

Result<Journal> Journal::open(const fs::path& directory, Access access) {
  const fs::path file = directory / "state.db";
  const fs::path aside = directory / "state.db.set-aside";
  std::error_code ignored;
  if (fs::exists(aside, ignored)) return set_aside_error(aside, "found so at an earlier start");
  if (fs::is_directory(file, ignored))
    return fail(ErrorCode::invalid, fmt::format("{} is a directory; expected the state database", file.string()),
                "move it away");
  const bool write = access == Access::write;
  if (!write && !fs::exists(file, ignored)) {
    if (ignored) return fail_errno("cannot look into " + directory.string(), ignored.value());
    return fail(ErrorCode::not_found, "nothing has run on this machine yet");
  }
  if (write) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return fail_errno("cannot make the state directory " + directory.string(), error.value());
  }
  sqlite3* raw = nullptr;
  const int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  const int opened = sqlite3_open_v2(file.c_str(), &raw, flags, nullptr);
  Journal journal(raw);
  if (opened != SQLITE_OK) return fail_sqlite(raw, "cannot open " + file.string());
  sqlite3_busy_timeout(raw, 5000);
  const Result<std::string> found = defect(raw);
  if (!found && !write && is_unfinished(sqlite3_errcode(raw)))
    return fail(ErrorCode::busy, "the state database is not complete yet: its first writer was stopped while it made it",
                "\"p2pctl apply\" completes it");
  const std::string why = TRY(found);
  if (!why.empty()) {
    journal.db_.reset();
    if (!write) return fail(ErrorCode::set_aside, "the state database is unusable: " + why);
    fs::rename(file, aside, ignored);
    fs::rename(directory / "state.db-wal", directory / "state.db.set-aside-wal", ignored);
    fs::remove(directory / "state.db-shm", ignored);
    return set_aside_error(aside, why);
  }
  if (!write) {
    Statement made(raw, "PRAGMA user_version");
    TRY(made.step());
    if (made.number(0) == 0) return fail(ErrorCode::not_found, "nothing has run on this machine yet");
    return journal;
  }
  int persist = 1;  // -wal and -shm stay, so that a reader without write permission can always open
  sqlite3_file_control(raw, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
  TRY(Statement(raw, "PRAGMA journal_mode=WAL").run());
  TRY(Statement(raw, "PRAGMA synchronous=FULL").run());
  Statement version(raw, "PRAGMA user_version");
  TRY(version.step());
  if (version.number(0) == 0) {
    const std::string create = fmt::format("BEGIN IMMEDIATE;{}PRAGMA user_version={};COMMIT", kTables, kSchema);
    if (sqlite3_exec(raw, create.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
      return fail_sqlite(raw, "cannot create its tables");
  }
  return journal;
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
  return s.bind(run.id, run.plan, run.resolved, to_string(run.state), run.failing, run.reboots, run.reboot_from,
                run.reboot_due, run.result, run.reason, run.started, run.ended)
      .run();
}

Result<void> Journal::put_step(std::int64_t run, const StepRecord& step) {
  Statement s(db_.get(), "INSERT OR REPLACE INTO steps VALUES(?,?,?,?,?,?,?,?,?)");
  const std::string finding = step.finding.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return s.bind(run, step.step, static_cast<int>(step.status), step.attempts, step.crashes, step.applied,
                step.committed, step.applied_boot, finding)
      .run();
}

Result<void> Journal::put_event(const JournalEvent& event) {
  Statement s(db_.get(), "INSERT INTO events(time,boot_id,run,step,type,text) VALUES(?,?,?,?,?,?)");
  return s.bind(event.time, event.boot_id, event.run, event.step, event.type, event.text).run();
}

Result<Run> Journal::begin_run(const Run& run, const JournalEvent& event) {
  Run begun = run;
  TRY(transaction([&]() -> Result<void> {
    Statement last(db_.get(), "SELECT coalesce(max(id),0)+1 FROM runs");
    TRY(last.step());
    begun.id = last.integer(0);
    JournalEvent first = event;
    first.run = begun.id;
    TRY(put_run(begun));
    return put_event(first);
  }));
  return begun;
}

Result<void> Journal::save(const Run& run, const JournalEvent& event) { return save(run, {}, event); }

Result<void> Journal::save(const Run& run, const std::vector<StepRecord>& steps, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(put_run(run));
    for (const StepRecord& step : steps) TRY(put_step(run.id, step));
    return put_event(event);
  });
}

Result<std::vector<Run>> Journal::runs(int limit) const {
  Statement s(db_.get(), "SELECT * FROM runs ORDER BY id DESC LIMIT ?");
  s.bind(limit);
  std::vector<Run> runs;
  while (TRY(s.step())) runs.push_back(read_run(s));
  return runs;
}

Result<std::optional<Run>> Journal::last_run() const {
  const std::vector<Run> found = TRY(runs(1));
  return found.empty() ? std::nullopt : std::optional<Run>(found.front());
}

Result<std::optional<Run>> Journal::newest_ready() const {
  Statement s(db_.get(), "SELECT * FROM runs WHERE result='ready' ORDER BY id DESC LIMIT 1");
  if (!TRY(s.step())) return std::nullopt;
  return read_run(s);
}

Result<std::optional<Run>> Journal::newest_besides(std::string_view plan, std::string_view other) const {
  Statement s(db_.get(), "SELECT * FROM runs WHERE plan NOT IN (?,?) ORDER BY id DESC LIMIT 1");
  s.bind(plan, other);
  if (!TRY(s.step())) return std::nullopt;
  return read_run(s);
}

Result<std::vector<StepRecord>> Journal::steps(std::int64_t run) const {
  Statement s(db_.get(), "SELECT step,status,attempts,crashes,applied,committed,applied_boot,finding FROM steps WHERE run=?");
  s.bind(run);
  std::vector<StepRecord> steps;
  while (TRY(s.step())) {
    StepRecord step;
    step.step = s.text(0);
    step.status = TRY(known<StepStatus>(s.number(1), std::size(kStatus)));
    step.attempts = s.number(2);
    step.crashes = s.number(3);
    step.applied = s.number(4) != 0;
    step.committed = s.number(5) != 0;
    step.applied_boot = s.text(6);
    step.finding = nlohmann::json::parse(s.text(7), nullptr, false);
    steps.push_back(std::move(step));
  }
  return steps;
}

Result<std::int64_t> Journal::open_intent(const Run& run, const Intent& intent, const JournalEvent& event) {
  TRY(transaction([&]() -> Result<void> {
    TRY(put_event(event));
    Statement s(db_.get(), "INSERT INTO intents(run,kind,step,boot_id) VALUES(?,?,?,?)");
    return s.bind(run.id, static_cast<int>(intent.kind), intent.step, intent.boot_id).run();
  }));
  Statement last(db_.get(), "SELECT max(id) FROM intents");
  TRY(last.step());
  return last.integer(0);
}

Result<void> Journal::close_intent(std::int64_t id, const Run& run, const StepRecord& step, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(Statement(db_.get(), "UPDATE intents SET closed=1 WHERE id=?").bind(id).run());
    TRY(put_run(run));
    TRY(put_step(run.id, step));
    return put_event(event);
  });
}

Result<std::vector<Intent>> Journal::open_intents(std::int64_t run) const {
  Statement s(db_.get(), "SELECT id,kind,step,boot_id FROM intents WHERE run=? AND closed=0 ORDER BY id");
  s.bind(run);
  std::vector<Intent> intents;
  while (TRY(s.step())) {
    const auto kind = TRY(known<Intent::Kind>(s.number(1), std::size(kIntent)));
    intents.push_back({s.integer(0), kind, s.text(2), s.text(3)});
  }
  return intents;
}

Result<bool> Journal::knows_boot(std::int64_t run, std::string_view boot_id) const {
  Statement s(db_.get(), "SELECT 1 FROM boots WHERE run=? AND boot_id=?");
  return s.bind(run, boot_id).step();
}

Result<void> Journal::add_boot(const Run& run, std::string_view boot_id, const JournalEvent& event) {
  return transaction([&]() -> Result<void> {
    TRY(Statement(db_.get(), "INSERT OR IGNORE INTO boots VALUES(?,?)").bind(run.id, boot_id).run());
    TRY(put_run(run));
    return put_event(event);
  });
}

Result<std::vector<JournalEvent>> Journal::events(std::int64_t run, int limit) const {
  Statement s(db_.get(),
              "SELECT time,boot_id,run,step,type,text FROM (SELECT * FROM events WHERE ?=0 OR run=? "
              "ORDER BY id DESC LIMIT ?) ORDER BY id");
  s.bind(run, run, limit);
  std::vector<JournalEvent> events;
  while (TRY(s.step())) events.push_back({s.text(0), s.text(1), s.integer(2), s.text(3), s.text(4), s.text(5)});
  return events;
}

nlohmann::json to_json(const Run& run) {
  return {{"id", run.id},           {"plan", run.plan},     {"state", to_string(run.state)}, {"reboots", run.reboots},
          {"result", run.result},   {"reason", run.reason}, {"started", run.started},        {"ended", run.ended}};
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
