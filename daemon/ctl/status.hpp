// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
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

inline constexpr int kEarlierRuns = 20;  ///< searched for the duration of each step

/// Mark of a step of a status document: "->" if it fails and p2pd fixes it.
std::string mark_of(const nlohmann::json& step);

/// True if nothing more happens by itself before the next boot.
bool at_rest(const nlohmann::json& status);

/// Follows a run of the service until `end`, and shows it; returns the newest status.
Result<nlohmann::json> follow(Service& service, const Context& context,
                              const std::function<bool(const nlohmann::json&)>& end);

/// Calls the service through `ask`, then follows the run until it is at rest, unless --no-block. Returns the exit code.
/// `turns_back`: a run that waits for a restart is about to change its state, and not at rest.
Result<int> ask_service(const Context& context, const std::function<Result<std::uint64_t>(Service&)>& ask,
                        bool turns_back = false);

}  // namespace p2pd::ctl
