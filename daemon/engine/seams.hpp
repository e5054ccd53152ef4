// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/finding.hpp"
#include "base/result.hpp"
#include "engine/journal.hpp"
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
  enum class Outcome {
    under_way,   ///< or left to somebody else, as `policy` says
    called_off,  ///< somebody does not want it now
  };
  virtual ~Rebooter() = default;
  /// `rolling_back`: what was done is being undone, and that cannot be paused.
  virtual Result<Outcome> reboot(RebootPolicy policy, std::string_view reason, bool rolling_back) = 0;
  /// Why no restart may be made now; empty: one may.
  virtual std::string in_the_way() { return {}; }
};

/// Hears what the walk does, while it does it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void checking(const Step&) {}
  virtual void checked(const Step&, const Finding&) {}
  virtual void fixing(const Step&) {}
  /// `known`: how the step stands after its fix.
  virtual void fixed(const Step&, const StepRecord& /*known*/, const Result<void>&) {}
  virtual void undoing(std::string_view /*step*/) {}
  /// The state of the run changed, or it was taken up again; `steps`: what is known of them.
  virtual void run_changed(const Run&, const Plan&, const std::map<std::string, StepRecord>& /*steps*/) {}
  virtual void waiting(std::string_view /*why*/) {}
};

/// A request that arrived while the walk was busy: pause, cancel, revert or stopped; each is told once.
class Requests {
 public:
  virtual ~Requests() = default;
  virtual std::optional<Event> poll() { return std::nullopt; }
};

}  // namespace p2pd
