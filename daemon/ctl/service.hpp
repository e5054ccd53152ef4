// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "base/result.hpp"
#include "ctl/verb.hpp"
#include "engine/transitions.hpp"

struct sd_bus;

namespace p2pd::ctl {

/// True if a command uses the service over the bus: on this or another machine, except for a tree, an image, or a
/// machine without systemd.
bool over_the_bus(const Options& options);

/// Service org.p2pd1 of this machine, or of another one over ssh. Calls may start it.
class Service {
 public:
  static Result<Service> open(const Options& options);

  /// Makes a request; returns the run. Asks a person at this terminal for the passwords that polkit requires. Errors of
  /// the service keep their code and next step.
  Result<std::uint64_t> ask(const Request& request);
  /// Documents of schema p2pd.status/1 and p2pd.history/1.
  Result<nlohmann::json> report();
  Result<nlohmann::json> history(int runs, std::int64_t before);
  /// Calls `look` with each report, now and after each change, until it returns true. Ends once `stop_fd` is readable.
  Result<void> follow(const std::function<bool(const nlohmann::json&)>& look, int stop_fd);

 private:
  struct Close {
    void operator()(sd_bus* bus) const;
  };
  Service(sd_bus* bus, bool here) : bus_(bus), here_(here) {}
  std::unique_ptr<sd_bus, Close> bus_;
  bool here_;  ///< on this machine
};

/// Documents p2pd.status/1, and p2pd.history/1 of the newest `runs` runs: from the service, or from the files of this
/// machine or tree.
Result<nlohmann::json> known_status(const Context& context);
Result<nlohmann::json> known_history(const Context& context, int runs);

/// End of a run for the caller: `changed` the host, if this call could; `stopped` by a signal.
struct Ending {
  std::optional<bool> changed;
  bool stopped = false;
};

/// Prints a document of schema p2pd.status/1 and the next action; returns `code`, with which p2pctl ends.
int show_status(const Context& context, nlohmann::json status, const Ending& ending, int code);
/// The same with the exit code of a verb that followed the run to its end.
int print_status(const Context& context, const nlohmann::json& status, const Ending& ending = {});

/// Mark of a step of a status document: "->" if it fails and p2pd fixes it.
std::string mark_of(const nlohmann::json& step);

/// True if the run of a status document has changed something for this step, even if it undid that.
bool is_changed(const nlohmann::json& step);
/// True if this step passes, with a note for the owner: its summary and its next action.
bool is_noted(const nlohmann::json& step);

/// True if nothing more happens by itself before the next boot.
bool at_rest(const nlohmann::json& status);

/// Seconds since 1970 of a time in ISO 8601 UTC; nothing for other text.
std::optional<std::int64_t> unix_time(const std::string& time);

/// Follows a run of the service until `end`, and shows it; returns the newest status.
Result<nlohmann::json> follow(Service& service, const Context& context,
                              const std::function<bool(const nlohmann::json&)>& end);

/// Makes a request to the service, then follows the run until it is at rest, unless --no-block. Returns the exit code.
Result<int> ask_service(const Context& context, const Request& request);

}  // namespace p2pd::ctl
