// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "base/json.hpp"
#include "ctl/service.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {

/// How a run ended for the one who asked: `changed` the host, where this call could; `stopped` by a signal.
struct Ending {
  std::optional<bool> changed;
  bool stopped = false;
};

/// Prints a document of schema p2pd.status/1, and what to do next; the exit code.
int print_status(const Context& context, nlohmann::json status, const Ending& ending = {});

/// The documents p2pd.status/1, and p2pd.history/1 of the newest `runs` runs: of the service where it is asked, else of the
/// files of this machine, or of the tree.
Result<nlohmann::json> known_status(const Context& context);
Result<nlohmann::json> known_history(const Context& context, int runs);

/// Lets `ask` ask the service, then follows the run until it comes to rest, unless --no-block. The exit code.
/// `turns_back`: a run that waits for a restart is not at rest, but about to turn.
Result<int> ask_service(const Context& context, const std::function<Result<std::uint64_t>(Service&)>& ask, bool turns_back = false);

}  // namespace p2pd::ctl
