// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/result.hpp"

struct sqlite3;

namespace p2pd {

/// Reason why the database is damaged or has a newer schema; empty if it is neither. Any other failure to read it is an
/// Error.
Result<std::string> database_defect(sqlite3* db);

/// Schema of the database; 0: it has no tables yet.
Result<int> schema_of(sqlite3* db);

/// Creates the tables, or rewrites those of an earlier schema, in one transaction.
Result<void> make_current(sqlite3* db);

/// Makes this connection, which may only read, see the tables of an earlier schema as current ones.
Result<void> view_as_current(sqlite3* db);

}  // namespace p2pd
