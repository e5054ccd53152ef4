// SPDX-License-Identifier: MIT
// Size limit of the journal: each boot adds a proof run, for the lifetime of the machine.
#include <fmt/format.h>

#include "engine/journal.hpp"
#include "engine/statement.hpp"

namespace p2pd {
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
