// SPDX-License-Identifier: MIT
#pragma once

#include <future>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "probes/bench/measure/worker.hpp"
#include "probes/bench/report/kernel_log.hpp"

namespace p2pd::bench {

/// A run that a process of its own makes.
struct Apart {
  Asked asked;
  std::string root = "/";
  int deadline_s = 120;  ///< without an answer; a run takes what it takes: 16 GPUs have 120 pairs
};

/// That process: says how it goes, line by line, then the measurement, or why there is none. Exit status of the process.
int measuring_process(const Apart& apart, const Root& root);

/// What the machine tells without CUDA: slow to read where configuration space is virtual, so it is read meanwhile.
struct Surroundings {
  std::vector<std::vector<Path>> paths;
  nlohmann::json machine = nlohmann::json::object();
  std::optional<GpuFunctions> gpus;  ///< of the run; nothing before it has told them
};

/// Listens to the measuring process: shows on a terminal which phase is under way, looks around once the GPUs are known.
class Listener {
 public:
  explicit Listener(const Host& host);

  void line(std::string_view text);
  void clear() const;  ///< takes the phase off the terminal
  const std::string& phase() const { return phase_; }
  /// What was found by the last that the process said, and, as a Wrong, the transfer that is under way; nothing where none was told.
  std::optional<Measurement> hung(const std::string& why) const;
  /// A process that measures begins anew.
  void restart();
  Surroundings surroundings() { return looking_.valid() ? looking_.get() : Surroundings{}; }

 private:
  const Host& host_;
  std::future<Surroundings> looking_;
  std::string phase_;
  std::string transfer_;
  std::string sofar_;
  bool shown_;  ///< standard error is a terminal
};

/// Measures; where a GPU faults or does not answer, once more with one transfer at a time, which names the pair. An Error of the
/// code `timeout` is GPUs that did not answer.
Result<Measurement> measure_apart(const Apart& apart, CommandRunner& runner, Listener& listener);

}  // namespace p2pd::bench
