// SPDX-License-Identifier: MIT
// Schema of the state database, and the conversion of earlier ones.
#include "engine/journal_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

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

}  // namespace

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

Result<int> schema_of(sqlite3* db) {
  Statement version(db, "PRAGMA user_version");
  TRY(version.step());
  return version.number(0);
}

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

Result<void> view_as_current(sqlite3* db) {
  if (TRY(schema_of(db)) != 1) return {};
  std::string sql = "PRAGMA temp_store=MEMORY;";
  for (const auto& [table, columns] : kFrom1)
    sql += fmt::format("CREATE TEMP VIEW {0} AS SELECT {1} FROM main.{0};", table, columns);
  return execute(db, sql, "cannot read its tables");
}

}  // namespace p2pd
