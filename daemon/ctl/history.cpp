// SPDX-License-Identifier: MIT
// p2pctl history: what was done, when, on which boot, as the journal has it.
#include <fmt/format.h>

#include "base/json_number.hpp"
#include "ctl/print.hpp"
#include "ctl/service.hpp"
#include "ctl/status.hpp"
#include "engine/status.hpp"

namespace p2pd::ctl {

Result<nlohmann::json> known_history(const Context& context, int runs) {
  Result<nlohmann::json> read = fail(ErrorCode::io, "not asked");
  if (over_the_bus(context.options)) {
    Result<Service> service = Service::open(context.options);
    read = service ? service->history(runs) : Failure(service.error());
  }
  if (!read && context.options.host.empty()) read = history_in_journal(context.state(), runs);  // it is as good
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
    rows.push_back({event.value("time", ""), fmt::format("run {}", json_number<std::int64_t>(event, "run")), event.value("boot_id", "").substr(0, 8),
                    event.value("type", ""), event.value("step", ""), event.value("text", "")});
  print_table(rows);
  return kDone;
}

}  // namespace p2pd::ctl
