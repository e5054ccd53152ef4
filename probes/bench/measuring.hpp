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

/// Run in a process of its own.
struct Apart {
  Asked asked;
  std::string root = "/";
  int deadline_s = 120;  ///< limit without an answer; a run has no limit: 16 GPUs have 120 pairs
};

/// Main function of that process: prints progress, line by line, then the measurement, or the reason for none. Exit
/// status.
int measuring_process(const Apart& apart, const Root& root);

/// Facts about the machine without CUDA. Reading them is slow if configuration space is virtual, so it is done in
/// parallel.
struct Surroundings {
  std::vector<std::vector<Path>> paths;
  nlohmann::json machine = nlohmann::json::object();
  std::optional<GpuFunctions> gpus;  ///< GPUs of the run; nothing before it has reported them
};

/// Listener to the measuring process: shows its phase on a terminal, and reads the machine's facts once the GPUs are
/// known.
class Listener {
 public:
  explicit Listener(const Host& host);

  void line(std::string_view text);
  void clear() const;  ///< removes the phase from the terminal
  const std::string& phase() const { return phase_; }
  /// Last reported results, with the transfer under way as a Wrong; nothing if the process reported none.
  std::optional<Measurement> hung(const std::string& why) const;
  /// Starts over for a new measuring process.
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

/// Measures; after a fault or a missing answer, once more with one transfer at a time, which identifies the pair. An
/// Error with the code `timeout`: the GPUs did not answer.
Result<Measurement> measure_apart(const Apart& apart, CommandRunner& runner, Listener& listener);

}  // namespace p2pd::bench
