// SPDX-License-Identifier: MIT
// p2pctl history: past changes with time and boot, from the journal.
#include <fmt/format.h>

#include <functional>

#include "base/json_members.hpp"
#include "ctl/service.hpp"
#include "ctl/status.hpp"
#include "engine/status.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {

namespace {

/// History of `runs` runs, collected in pages: `page` returns one, of a number of runs older than a given run.
Result<nlohmann::json> in_pages(int runs, const std::function<Result<nlohmann::json>(int, std::int64_t)>& page) {
  nlohmann::json all = TRY(page(runs, 0));
  for (;;) {
    const auto before = json_number<std::int64_t>(all, "before");
    const int left = runs - static_cast<int>(all["runs"].size());
    if (before <= 0 || left <= 0) return all;
    nlohmann::json more = TRY(page(left, before));
    if (more["runs"].empty() || json_number<std::int64_t>(more, "before") >= before) return all;  // invalid page
    all["runs"].insert(all["runs"].end(), more["runs"].begin(), more["runs"].end());
    more["events"].insert(more["events"].end(), all["events"].begin(), all["events"].end());  // oldest first
    all["events"] = std::move(more["events"]);
    all["before"] = json_number<std::int64_t>(more, "before");
  }
}

}  // namespace

Result<nlohmann::json> known_history(const Context& context, int runs) {
  Result<nlohmann::json> read = fail(ErrorCode::io, "not asked");
  if (over_the_bus(context.options)) {
    Result<Service> service = Service::open(context.options);
    read = service ? in_pages(runs, [&](int count, std::int64_t before) { return service->history(count, before); })
                   : Failure(service.error());
  }
  if (!read && context.options.host.empty())  // the journal has the same data
    read = in_pages(runs,
                    [&](int count, std::int64_t before) { return history_in_journal(context.state(), count, before); });
  return read;
}

Result<int> history(const Context& context) {
  const nlohmann::json found = TRY(known_history(context, context.options.lines));
  if (context.options.json) {
    print_json(found.value("schema", ""), found);
    return kDone;
  }
  if (found.value("runs", nlohmann::json::array()).empty()) fmt::print("nothing has run on this machine yet\n");
  std::vector<std::vector<std::string>> rows;
  for (const nlohmann::json& event : found.value("events", nlohmann::json::array()))
    rows.push_back({event.value("time", ""), fmt::format("run {}", json_number<std::int64_t>(event, "run")),
                    event.value("boot_id", "").substr(0, 8), event.value("type", ""), event.value("step", ""),
                    event.value("text", "")});
  print_table(rows);
  return kDone;
}

}  // namespace p2pd::ctl
