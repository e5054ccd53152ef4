// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

/// Times the parts of a run, and tells each as it begins: what is under way when a GPU hangs is then known.
class Phases {
 public:
  using Clock = std::chrono::steady_clock;
  Phases(std::vector<Phase>& phases, std::function<void(std::string_view)> progress)
      : phases_(phases), progress_(std::move(progress)) {}

  /// Ends the phase before and begins this one.
  void begin(std::string_view name) {
    end();
    if (progress_) progress_(name);
    phases_.push_back({std::string(name), elapsed_ms(), 0});
  }
  void end() {
    if (!phases_.empty() && phases_.back().length_ms == 0) phases_.back().length_ms = elapsed_ms() - phases_.back().start_ms;
  }
  double elapsed_ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }

 private:
  Clock::time_point start_ = Clock::now();
  std::vector<Phase>& phases_;
  std::function<void(std::string_view)> progress_;
};

}  // namespace p2pd::bench
