// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Restarts and locks of systemd-logind. Each call opens its own connection to the system bus, which may have been
/// restarted since the last one, and waits five seconds at most. ErrorCode::not_found if there is no bus.
/// Reference: org.freedesktop.login1(5).
class Logind {
 public:
  /// Takes a block lock on shutdown and sleep, held as long as the descriptor is open.
  Result<Descriptor> inhibit(const std::string& why);
  /// Scheduled shutdown: "reboot", "poweroff", ... at `when`, in microseconds of the wall clock.
  struct Schedule {
    std::string kind;
    std::uint64_t when = 0;
    bool operator==(const Schedule&) const = default;
  };
  /// Shutdown that logind has scheduled. It stores one: a new schedule replaces it without notice.
  Result<std::optional<Schedule>> scheduled();
  /// Schedules a shutdown. logind sends `message` to all logged-in users, and repeats it as the time comes closer.
  Result<void> schedule(const Schedule& schedule, const std::string& message);
  Result<void> cancel();
  /// True if the machine is shutting down.
  Result<bool> going_down();
};

}  // namespace p2pd
