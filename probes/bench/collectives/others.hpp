// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/command.hpp"
#include "machine/hardware/measurement.hpp"

namespace p2pd::bench {

/// Benchmarks of NVIDIA whose output is understood: CUDA samples p2pBandwidthLatencyTest, nvbandwidth, nccl-tests
/// all_reduce_perf.
constexpr std::string_view kOthers[] = {"p2pBandwidthLatencyTest", "nvbandwidth", "all_reduce_perf"};

/// Figures of another benchmark on the same GPUs, by ordered pair.
struct Other {
  using Matrix = std::map<std::pair<int, int>, double>;
  std::string program;                         ///< path or name, as it was asked for
  std::string not_run = {};                    ///< reason why there are no figures; empty: there are
  Matrix copy_gb_s = {};                       ///< copy engine, one way
  Matrix copy_both_gb_s = {};                  ///< copy engine, both ways at once: the sum
  Matrix latency_us = {};                      ///< of a store, or of a dependent load
  std::optional<double> all_reduce_gb_s = {};  ///< bus bandwidth of the largest size
  std::uint64_t wrong = 0;                     ///< elements that all_reduce_perf found wrong
};

/// Parses what `program`, one of kOthers by its file name, prints; figures that it lacks are absent.
Other parse_other(const std::string& program, std::string_view output);

/// Runs each program, a path or a name on the PATH, on the GPUs of `run`, one after the other, two minutes at most
/// each. One that is not known or not installed, fails or prints no figures has `not_run`; after a GPU faulted or hung,
/// all have it.
std::vector<Other> run_others(CommandRunner& runner, const Measurement& run, const std::vector<std::string>& programs);

/// Table of the medians over all pairs, a line a program, and the reasons why others did not run.
std::vector<std::string> side_by_side(const Measurement& run, const std::vector<Other>& others);

/// {"program", "not_run"} or {"program", "copy_gb_s": [[from, to, GB/s], ...], "copy_both_gb_s", "latency_us",
/// "all_reduce_gb_s", "wrong"}
nlohmann::json to_json(const Other& other);

}  // namespace p2pd::bench
