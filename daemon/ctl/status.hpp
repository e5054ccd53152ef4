// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "base/json.hpp"
#include "ctl/service.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {

/// End of a run for the caller: `changed` the host, if this call could; `stopped` by a signal.
struct Ending {
  std::optional<bool> changed;
  bool stopped = false;
};

/// Prints a document of schema p2pd.status/1 and the next action. Returns the exit code.
int print_status(const Context& context, nlohmann::json status, const Ending& ending = {});

/// Documents p2pd.status/1, and p2pd.history/1 of the newest `runs` runs: from the service, or from the files of this
/// machine or tree.
Result<nlohmann::json> known_status(const Context& context);
Result<nlohmann::json> known_history(const Context& context, int runs);

/// Calls the service through `ask`, then follows the run until it is at rest, unless --no-block. Returns the exit code.
/// `turns_back`: a run that waits for a restart is about to change its state, and not at rest.
Result<int> ask_service(const Context& context, const std::function<Result<std::uint64_t>(Service&)>& ask,
                        bool turns_back = false);

}  // namespace p2pd::ctl
