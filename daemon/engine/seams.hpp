// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/finding.hpp"
#include "base/result.hpp"
#include "engine/transitions.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Wall time and waiting.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::system_clock::time_point now() = 0;
  virtual void wait(std::chrono::milliseconds time) = 0;
};

/// Restarts the machine, or leaves that to somebody else.
class Rebooter {
 public:
  virtual ~Rebooter() = default;
  /// Returns once the reboot is on its way, or at once when it is somebody else's to make.
  virtual Result<void> reboot(std::string_view reason) = 0;
};

/// Hears what the walk does, while it does it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void checked(const Step&, const Finding&) {}
  virtual void fixing(const Step&) {}
  virtual void fixed(const Step&, const Result<void>&) {}
  virtual void undoing(std::string_view /*step*/) {}
  virtual void run_changed(RunState, std::string_view /*reason*/) {}
};

/// A request that arrived while the walk was busy: pause, cancel, revert or stopped.
class Requests {
 public:
  virtual ~Requests() = default;
  virtual std::optional<Event> poll() { return std::nullopt; }
};

}  // namespace p2pd
