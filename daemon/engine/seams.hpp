// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

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

class SystemClock : public Clock {
 public:
  std::chrono::system_clock::time_point now() override { return std::chrono::system_clock::now(); }
  void wait(std::chrono::milliseconds time) override { std::this_thread::sleep_for(time); }
};

/// Restarts the machine, or leaves the restart to the operator.
class Rebooter {
 public:
  enum class Outcome {
    under_way,   ///< restarting, or left to the operator, as `policy` says
    called_off,  ///< a restart is not wanted now
  };
  virtual ~Rebooter() = default;
  /// `rolling_back`: changes are being undone; this cannot be paused.
  virtual Result<Outcome> reboot(RebootPolicy policy, std::string_view reason, bool rolling_back) = 0;
  /// Reason why no restart may happen now; empty: a restart may happen.
  virtual std::string in_the_way() { return {}; }
};

/// Receives the events of the walk while it runs.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void checking(const Step&) {}
  virtual void checked(const Step&, const Finding&) {}
  virtual void fixing(const Step&) {}
  /// `known`: record of the step after its fix.
  virtual void fixed(const Step&, const StepRecord& /*known*/, const Result<void>&) {}
  virtual void undoing(std::string_view /*step*/) {}
  /// Reports a new state of the run, or its continuation; `steps`: records of its steps.
  virtual void run_changed(const Run&, const Plan&, const std::map<std::string, StepRecord>& /*steps*/) {}
  virtual void waiting(std::string_view /*why*/) {}
};

/// Returns a request that arrived while the walk was busy, each once: pause, cancel, revert or stopped.
using Poll = std::function<std::optional<Event>()>;

}  // namespace p2pd
