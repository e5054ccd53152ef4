// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Restarts and locks of systemd-logind. Each call makes a connection of its own to the system bus, which may have been
/// started anew since the last one, and waits five seconds at most. ErrorCode::not_found where there is no bus.
/// Reference: org.freedesktop.login1(5).
class Logind {
 public:
  /// A block lock on shutdown and sleep, held as long as the descriptor is open.
  Result<Descriptor> inhibit(const std::string& why);
  /// A shutdown that is to come: "reboot", "poweroff", ... at so many microseconds of the wall clock.
  struct Schedule {
    std::string kind;
    std::uint64_t when = 0;
    bool operator==(const Schedule&) const = default;
  };
  /// The one that logind has. It has room for one: another one takes its place without a word.
  Result<std::optional<Schedule>> scheduled();
  /// Everybody who is logged in is told `message`, and again as it comes closer.
  Result<void> schedule(const Schedule& schedule, const std::string& message);
  Result<void> cancel();
  /// The machine goes down.
  Result<bool> going_down();
};

}  // namespace p2pd
