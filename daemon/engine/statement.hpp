// SPDX-License-Identifier: MIT
#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// True if a result code means that the file is no intact database; other codes are errors of one call.
bool is_damage(int code);

/// Error of a call to which SQLite answered `code` and the text `why`; names the next step.
Failure sqlite_error(int code, std::string_view doing, std::string_view why);
/// Error of the last call on `db`.
Failure sqlite_error(sqlite3* db, std::string_view doing);

/// Prepared statement; values are bound in order.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db), sql_(sql) {
    sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  template <class... Values>
  Statement& bind(const Values&... values) {
    (bind_one(values), ...);
    return *this;
  }
  /// True if there is a row.
  Result<bool> step();
  Result<void> run();
  std::string text(int column) const {
    const auto* bytes = sqlite3_column_text(statement_, column);
    return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  int number(int column) const { return sqlite3_column_int(statement_, column); }

 private:
  void bind_one(std::string_view value) {
    const char* text =
        value.data() == nullptr ? "" : value.data();  // a null pointer would be NULL, which equals nothing
    sqlite3_bind_text(statement_, ++bound_, text, static_cast<int>(value.size()), SQLITE_TRANSIENT);
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

}  // namespace p2pd
