// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "base/result.hpp"
#include "ctl/verb.hpp"

struct sd_bus;

namespace p2pd::ctl {

/// Whether what is typed goes over the bus to the service: this machine or another one, and not a tree, an image, or a
/// machine on which systemd does not run.
bool over_the_bus(const Options& options);

/// The service org.p2pd1 of this machine, or of another one over ssh. Calls may start it.
class Service {
 public:
  static Result<Service> open(const Options& options);

  /// Apply, with plan and options, or a method without arguments; the run.
  Result<std::uint64_t> apply(const std::string& plan, bool reboot);
  Result<std::uint64_t> ask(const char* method);
  /// The documents of schema p2pd.status/1 and p2pd.history/1.
  Result<nlohmann::json> report();
  Result<nlohmann::json> history(int runs, std::int64_t before);
  /// Calls `look` with each report, now and whenever something changed, until it returns true. `stop_fd` readable ends it.
  Result<void> follow(const std::function<bool(const nlohmann::json&)>& look, int stop_fd);

 private:
  struct Close {
    void operator()(sd_bus* bus) const;
  };
  explicit Service(sd_bus* bus) : bus_(bus) {}
  std::unique_ptr<sd_bus, Close> bus_;
};

/// While it lives, a person at this terminal is asked for passwords that polkit wants: by pkttyagent.
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
