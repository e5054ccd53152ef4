// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace p2pd {

/// Columns of a row of an answer, read in order; NULL reads as "" and 0.
class Columns {
 public:
  explicit Columns(sqlite3_stmt* statement) : statement_(statement) {}
  std::string text();
  std::int64_t integer();
  int number() { return static_cast<int>(integer()); }
  bool flag() { return integer() != 0; }
  /// Value of an enumeration by its name. A name without a value makes the answer an Error.
  template <class Enum>
  Enum word(std::optional<Enum> (*value_called)(std::string_view)) {
    const std::string name = text();
    const std::optional<Enum> value = value_called(name);
    if (!value) unknown_word = name;
    return value.value_or(Enum{});
  }
  std::optional<std::string> unknown_word;

 private:
  sqlite3_stmt* statement_;
  int column_ = 0;
};

/// State database of p2pd: a connection to SQLite, for the tables of the journal.
class Database {
 public:
  enum class Access { write, read };
  using Values = std::initializer_list<std::variant<std::int64_t, std::string_view>>;  ///< bound in order

  /// Takes over an open connection.
  explicit Database(sqlite3* db);
  /// `directory`/state.db. A corrupt or newer-schema database is renamed to state.db.set-aside, quarantined until
  /// `accept_loss`: ErrorCode::database_quarantined. One that cannot be read now stays: another Error. Read access
  /// without one: ErrorCode::not_found.
  static Result<Database> open(const std::filesystem::path& directory, Access access);
  /// Takes back a database that an older p2pd quarantined because it did not know its schema. Nothing was recorded
  /// since.
  static void take_back(const std::filesystem::path& directory);
  /// Accepts the loss of the quarantined database, which is kept under another name.
  static Result<void> accept_loss(const std::filesystem::path& directory);

  sqlite3* get() const { return db_.get(); }

  /// Runs a statement, and calls `read` for each row of its answer.
  Result<void> run(const std::string& sql, Values values = {},
                   const std::function<void(Columns&)>& read = nullptr) const;
  /// Runs several statements without values; `doing` is for the message.
  Result<void> run_all(const std::string& sql, std::string_view doing) const;
  /// First column of an answer with one row; 0 if it has none.
  Result<std::int64_t> number(const std::string& sql, Values values = {}) const;
  /// All rows of an answer, as `read` returns them.
  template <class Value>
  Result<std::vector<Value>> rows(const std::string& sql, Values values, Value (*read)(Columns&)) const {
    std::vector<Value> answer;
    TRY(run(sql, values, [&](Columns& row) { answer.push_back(read(row)); }));
    return answer;
  }

 private:
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_;
};

}  // namespace p2pd
