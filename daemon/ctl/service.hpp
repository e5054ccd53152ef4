// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "base/result.hpp"
#include "ctl/verb.hpp"
#include "protocol/request.hpp"

struct sd_bus;

namespace p2pd::ctl {

/// True if a command uses the service over the bus: on this or another machine, except for a tree, an image, or a
/// machine without systemd.
bool over_the_bus(const Options& options);

/// Service org.p2pd1 of this machine, or of another one over ssh. Calls may start it.
class Service {
 public:
  static Result<Service> open(const Options& options);

  /// Makes a request; returns the run. Errors of the service keep their code and next step.
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
  explicit Service(sd_bus* bus) : bus_(bus) {}
  std::unique_ptr<sd_bus, Close> bus_;
};

/// Asks a person at this terminal, by pkttyagent, for the passwords that polkit requires, as long as the object exists.
class PasswordAgent {
 public:
  explicit PasswordAgent(const Options& options);
  ~PasswordAgent();
  PasswordAgent(const PasswordAgent&) = delete;
  PasswordAgent& operator=(const PasswordAgent&) = delete;

 private:
  int pid_ = -1;
};

}  // namespace p2pd::ctl
