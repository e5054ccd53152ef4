// SPDX-License-Identifier: MIT
#include "engine/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>

#include "engine/journal.hpp"

namespace p2pd {
namespace {

namespace fs = std::filesystem;

constexpr int kPrimary = 0xff;  // primary part of an extended result code

struct Advice {
  int code;
  ErrorCode kind;
  const char* next;
};
constexpr Advice kAdvice[] = {
    {SQLITE_FULL, ErrorCode::io, "free space on the file system of the state directory, then start again"},
    {SQLITE_READONLY, ErrorCode::io, "make the state directory writable, or run as root"},
    {SQLITE_CANTOPEN, ErrorCode::io, "make the state directory writable, or run as root"},
    {SQLITE_BUSY, ErrorCode::busy,
     "\"fuser -v\" of state.db names the process that holds it; end that, then try again"},
    {SQLITE_IOERR, ErrorCode::io, "\"dmesg\" shows what the disk reports; the database stays as it is: try again"},
    {SQLITE_NOMEM, ErrorCode::io, "free memory, then try again; the database stays as it is"},
    {SQLITE_CORRUPT, ErrorCode::io, "try again: the next start checks the whole database"},
    {SQLITE_NOTADB, ErrorCode::io, "try again: the next start checks the whole database"},
};

/// True if a result code means that the file is no intact database; other codes are errors of one call.
bool is_damage(int code) { return (code & kPrimary) == SQLITE_CORRUPT || (code & kPrimary) == SQLITE_NOTADB; }

/// Error of a call to which SQLite answered `code` and the text `why`; names the next step.
Failure sqlite_error(int code, std::string_view doing, std::string_view why) {
  const auto* advice = std::ranges::find(kAdvice, code & kPrimary, &Advice::code);
  const bool known = advice != std::end(kAdvice);
  return fail(known ? advice->kind : ErrorCode::io, fmt::format("state database: {}: {}", doing, why),
              known ? advice->next : "");
}

/// Error of the last call on `db`.
Failure last_error(sqlite3* db, std::string_view doing) {
  const int code = sqlite3_errcode(db);
  const bool full =
      (code & kPrimary) == SQLITE_FULL || ((code & kPrimary) == SQLITE_IOERR && sqlite3_system_errno(db) == ENOSPC);
  if (full) return sqlite_error(SQLITE_FULL, doing, "no space left on its file system");
  return sqlite_error(code, doing, sqlite3_errmsg(db));
}

void bind(sqlite3_stmt* statement, int place, const std::variant<std::int64_t, std::string_view>& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    sqlite3_bind_int64(statement, place, *number);
  } else {
    const auto& text = std::get<std::string_view>(value);
    const char* bytes =
        text.data() == nullptr ? "" : text.data();  // a null pointer would be NULL, which equals nothing
    sqlite3_bind_text(statement, place, bytes, static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
}

}  // namespace

std::string Columns::text() {
  const auto* bytes = sqlite3_column_text(statement_, column_++);
  return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
}

std::int64_t Columns::integer() { return sqlite3_column_int64(statement_, column_++); }

Database::Database(sqlite3* db) : db_(db, sqlite3_close_v2) {}

Result<void> Database::run(const std::string& sql, Values values, const std::function<void(Columns&)>& read) const {
  sqlite3_stmt* raw = nullptr;
  sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
  if (!statement) return last_error(db_.get(), sql);
  int place = 0;
  for (const auto& value : values) bind(raw, ++place, value);
  int code = SQLITE_OK;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (!read) return {};
    Columns row(raw);
    read(row);
    if (row.unknown_word)
      return fail(ErrorCode::invalid,
                  fmt::format("state database: \"{}\" is not a value of its column", *row.unknown_word),
                  "move state.db away; \"sudo p2pctl revert\" still undoes every recorded change");
  }
  if (code != SQLITE_DONE) return last_error(db_.get(), sql);
  return {};
}

Result<void> Database::run_all(const std::string& sql, std::string_view doing) const {
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return last_error(db_.get(), doing);
  return {};
}

Result<std::int64_t> Database::number(const std::string& sql, Values values) const {
  std::int64_t number = 0;
  TRY(run(sql, values, [&](Columns& row) { number = row.integer(); }));
  return number;
}

// ---- the file: its schemas, and what is done with one that is damaged, newer, or not finished
// -------------------------

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

/// Schema of the database; 0: it has no tables yet.
Result<std::int64_t> schema_of(const Database& db) { return db.number("PRAGMA user_version"); }

/// Reason why the database is damaged or has a newer schema; empty if it is neither. Any other failure to read it is an
/// Error.
Result<std::string> database_defect(const Database& db) {
  const auto unread = [&](const Error& error) -> Result<std::string> {
    if (is_damage(sqlite3_errcode(db.get()))) return std::string(sqlite3_errmsg(db.get()));
    return Failure(error);
  };
  const Result<std::int64_t> schema = schema_of(db);
  if (!schema) return unread(schema.error());
  if (*schema < 0 || *schema > kSchema)
    return fmt::format("its schema is {}, and the newest that this program knows is {}", *schema, kSchema);
  std::string found;
  const Result<void> checked = db.run("PRAGMA quick_check(1)", {}, [&](Columns& row) { found = row.text(); });
  if (!checked && found.empty()) return unread(checked.error());
  std::ranges::replace(found, '\n', ' ');
  if (const int code = code_of_unread_page(found); code != 0 && !is_damage(code))
    return sqlite_error(code, "cannot be checked", fmt::format("{} ({})", sqlite3_errstr(code), found));
  return found == "ok" ? "" : found;
}

/// Creates the tables, or rewrites those of an earlier schema, in one transaction.
Result<void> make_current(const Database& db) {
  const std::int64_t schema = TRY(schema_of(db));
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
  return db.run_all(sql, schema == 0 ? "cannot create its tables" : "cannot rewrite its tables");
}

/// Makes this connection, which may only read, see the tables of an earlier schema as current ones.
Result<void> view_as_current(const Database& db) {
  if (TRY(schema_of(db)) != 1) return {};
  std::string sql = "PRAGMA temp_store=MEMORY;";
  for (const auto& [table, columns] : kFrom1)
    sql += fmt::format("CREATE TEMP VIEW {0} AS SELECT {1} FROM main.{0};", table, columns);
  return db.run_all(sql, "cannot read its tables");
}

/// True for the codes of a reader after the first writer was killed while it created the database: no -shm yet, or a
/// hot journal.
bool is_unfinished(int code) { return code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PROTOCOL; }

Failure quarantined_error(const fs::path& aside, std::string_view why) {
  return fail(
      ErrorCode::database_quarantined,
      fmt::format("the state database is unusable ({}); it is kept at {}, and p2pd only checks", why, aside.string()),
      "inspect it; then \"sudo p2pctl apply --accept-state-loss\" continues without it. \"sudo p2pctl revert\" still "
      "undoes "
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
Result<std::string> unknown_word(const Database& db) {
  for (const auto& [table, column, knows] : kWords) {
    const std::string query = fmt::format("SELECT DISTINCT {} FROM {}", column, table);
    const std::vector<std::string> words =
        TRY(db.rows<std::string>(query, {}, [](Columns& row) { return row.text(); }));
    if (const auto word = std::ranges::find_if_not(words, knows); word != words.end())
      return fmt::format("\"{}\" is not a {} of its {}", *word, column, table);
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

Result<Database> open_file(const std::string& name, int flags) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(name.c_str(), &raw, flags, nullptr);
  Database database(raw);
  if (opened != SQLITE_OK) return last_error(raw, "cannot open " + name);
  sqlite3_busy_timeout(raw, 5000);
  return database;
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
  Database db = TRY(open_file(file, SQLITE_OPEN_READONLY));
  Result<std::string> found = database_defect(db);
  if (const int code = sqlite3_errcode(db.get()); !found && is_unfinished(code)) {
    const std::string other = beside(file);
    for (const std::string& needed : {other, file.string() + "-shm"})
      if (!needed.empty() && ::access(needed.c_str(), R_OK) != 0 && errno == EACCES)
        return fail(ErrorCode::denied, "the state database is not readable: " + needed,
                    "\"sudo systemd-tmpfiles --create p2pd.conf\" sets its owner and mode; so does the next start of "
                    "the worker");
    if (!other.empty() || code == SQLITE_PROTOCOL)
      return fail(ErrorCode::busy, "the state database is incomplete: the process that created it was stopped",
                  "\"sudo p2pctl apply\" completes it");
    db = TRY(open_file(immutable_uri(file), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
    found = database_defect(db);
  }
  const std::string why = TRY(found);
  if (!why.empty()) return fail(ErrorCode::database_quarantined, "the state database is unusable: " + why);
  if (TRY(schema_of(db)) == 0) return fail(ErrorCode::not_found, "nothing has run on this machine yet");
  TRY(view_as_current(db));
  return db;
}

/// Gives a database current tables, for writing; returns why it is unusable, or an empty string.
Result<std::string> make_writable(const Database& db) {
  if (std::string why = TRY(database_defect(db)); !why.empty()) return why;
  int persist = 1;  // -wal and -shm stay, so that a reader without write permission can always open
  sqlite3_file_control(db.get(), "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
  TRY(db.run("PRAGMA journal_mode=WAL"));
  TRY(db.run("PRAGMA synchronous=FULL"));
  TRY(make_current(db));
  return unknown_word(db);
}

}  // namespace

Result<Database> Database::open(const fs::path& directory, Access access) {
  const fs::path file = directory / "state.db";
  const fs::path aside = directory / "state.db.set-aside";
  std::error_code ignored;
  if (access == Access::write) take_back(directory);
  if (fs::exists(aside, ignored)) return quarantined_error(aside, "found so at an earlier start");
  if (fs::is_directory(file, ignored))
    return fail(ErrorCode::invalid, fmt::format("{} is a directory; expected the state database", file.string()),
                "move it away");
  if (access == Access::read) {
    if (fs::exists(file, ignored)) return open_to_read(file);
    if (ignored) return fail_errno("cannot read directory " + directory.string(), ignored.value());
    return fail(ErrorCode::not_found, "nothing has run on this machine yet");
  }
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return fail_errno("cannot make the state directory " + directory.string(), error.value());
  std::optional<Database> db = TRY(open_file(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  const std::string why = TRY(make_writable(*db));
  if (why.empty()) return *std::move(db);
  db.reset();
  return quarantine(directory, why);
}

void Database::take_back(const fs::path& directory) {
  std::error_code ignored;
  const fs::path file = directory / "state.db", aside = directory / "state.db.set-aside";
  if (!fs::exists(aside, ignored) || fs::exists(file, ignored)) return;
  {
    const auto db = open_file(aside, SQLITE_OPEN_READONLY);
    if (!db || database_defect(*db).value_or("unknown") != "" || schema_of(*db).value_or(0) < 2 ||
        unknown_word(*db).value_or("unknown") != "")
      return;
  }
  fs::rename(directory / "state.db.set-aside-wal", directory / "state.db-wal", ignored);
  fs::rename(aside, file, ignored);
}

Result<void> Database::accept_loss(const fs::path& directory) {
  std::error_code error;
  const fs::path aside = directory / "state.db.set-aside";
  if (!fs::exists(aside, error)) return {};
  int number = 1;
  while (fs::exists(directory / fmt::format("state.db.lost-{}", number), error)) ++number;
  fs::rename(aside, directory / fmt::format("state.db.lost-{}", number), error);
  if (error) return fail_errno("cannot rename " + aside.string(), error.value());
  return {};
}

}  // namespace p2pd
