// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
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
  /// A restart `delay` from now; everybody who is logged in is told `message`, and again as it comes closer.
  Result<void> schedule_restart(std::chrono::seconds delay, const std::string& message);
  Result<void> cancel_restart();
  /// Still scheduled, or begun.
  Result<bool> restart_under_way();
};

}  // namespace p2pd
