// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

/// Times the parts of a run, and reports each as it begins and as it continues. If a GPU hangs, the current part is
/// known, and a slow run is not mistaken for a hanging one.
class Phases {
 public:
  using Clock = std::chrono::steady_clock;
  Phases(std::vector<Phase>& phases, std::function<void(std::string_view phase, std::string_view part)> progress)
      : phases_(phases), progress_(std::move(progress)) {}

  /// Ends the current phase and begins this one.
  void begin(std::string_view name) {
    end();
    tell(name);
    phases_.push_back({std::string(name), elapsed_ms(), 0});
  }
  /// Reports, once per second, that the GPUs have answered and the phase continues.
  void go_on() {
    if (!phases_.empty() && Clock::now() - told_ >= std::chrono::seconds(1)) tell(phases_.back().name);
  }
  /// Reports the current part of the phase.
  void begin_part(std::string_view part) {
    if (!phases_.empty()) tell(phases_.back().name, part);
  }
  void end() {
    if (!phases_.empty() && phases_.back().length_ms == 0)
      phases_.back().length_ms = elapsed_ms() - phases_.back().start_ms;
  }
  double elapsed_ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }

 private:
  void tell(std::string_view name, std::string_view part = {}) {
    told_ = Clock::now();
    if (progress_) progress_(name, part);
  }

  Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;
  std::vector<Phase>& phases_;
  std::function<void(std::string_view phase, std::string_view part)> progress_;
};

}  // namespace p2pd::bench
