// SPDX-License-Identifier: MIT
// p2pctl status and history: what the journal says, read beside a walk that may be running.
#include <fmt/format.h>

#include "ctl/print.hpp"
#include "ctl/walks.hpp"

namespace p2pd::ctl {
namespace {

/// The journal for reading; nothing when there is none yet.
Result<std::optional<Journal>> read_journal(const Context& context) {
  Result<Journal> journal = Journal::open(context.state(), Journal::Access::read);
  if (journal) return std::optional<Journal>(*std::move(journal));
  if (journal.error().code == ErrorCode::not_found) return std::optional<Journal>();
  return Failure(std::move(journal).error());
}

}  // namespace

Result<int> status(const Context& context) {
  const auto journal = TRY(read_journal(context));
  const auto last = journal ? TRY(journal->last_run()) : std::nullopt;
  print_run(context, last.value_or(nothing_yet()), std::nullopt);
  return kDone;
}

Result<int> history(const Context& context) {
  const auto journal = TRY(read_journal(context));
  const std::vector<Run> runs = journal ? TRY(journal->runs(context.options.lines)) : std::vector<Run>();
  const std::vector<JournalEvent> events =
      journal ? TRY(journal->events(0, context.options.lines * 10)) : std::vector<JournalEvent>();
  if (context.options.json) {
    nlohmann::json body = {{"runs", nlohmann::json::array()}, {"events", nlohmann::json::array()}};
    for (const Run& run : runs) {
      body["runs"].push_back(to_json(run));
      for (const StepRecord& step : TRY(journal->steps(run.id))) body["runs"].back()["steps"].push_back(to_json(step));
    }
    for (const JournalEvent& event : events) body["events"].push_back(to_json(event));
    print_json("p2pd.history/1", std::move(body));
    return kDone;
  }
  if (runs.empty()) fmt::print("nothing has run on this machine yet\n");
  std::vector<std::vector<std::string>> rows;
  for (const JournalEvent& event : events)
    rows.push_back({event.time, fmt::format("run {}", event.run), event.boot_id.substr(0, 8), event.type, event.step, event.text});
  print_table(rows);
  return kDone;
}

}  // namespace p2pd::ctl
