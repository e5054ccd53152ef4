// SPDX-License-Identifier: MIT
#include "engine/statement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace p2pd {
namespace {

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

}  // namespace

bool is_damage(int code) { return (code & kPrimary) == SQLITE_CORRUPT || (code & kPrimary) == SQLITE_NOTADB; }

Failure sqlite_error(int code, std::string_view doing, std::string_view why) {
  const auto* advice = std::ranges::find(kAdvice, code & kPrimary, &Advice::code);
  const bool known = advice != std::end(kAdvice);
  return fail(known ? advice->kind : ErrorCode::io, fmt::format("state database: {}: {}", doing, why),
              known ? advice->next : "");
}

Failure sqlite_error(sqlite3* db, std::string_view doing) {
  const int code = sqlite3_errcode(db);
  const bool full =
      (code & kPrimary) == SQLITE_FULL || ((code & kPrimary) == SQLITE_IOERR && sqlite3_system_errno(db) == ENOSPC);
  if (full) return sqlite_error(SQLITE_FULL, doing, "no space left on its file system");
  return sqlite_error(code, doing, sqlite3_errmsg(db));
}

Result<bool> Statement::step() {
  if (statement_ == nullptr) return sqlite_error(db_, sql_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_error(db_, sql_);
}

Result<void> Statement::run() {
  TRY(step());
  return {};
}

}  // namespace p2pd
