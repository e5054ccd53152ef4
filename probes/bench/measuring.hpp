// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <functional>
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

// Progress lines of the measuring process.
constexpr std::string_view kPhaseMark = "phase: ";
constexpr std::string_view kGpusMark = "gpus: ";          // PCI addresses of the GPUs
constexpr std::string_view kTransferMark = "transfer: ";  // test, from, to: with Asked::alone
constexpr std::string_view kSofarMark = "so far: ";       // a measurement
constexpr std::string_view kSampleMark = "sample: ";      // of a soak

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

/// Samples of a soak in the requesting process. Prints a line about the first one, one each minute, and one at the end.
class SoakLog {
 public:
  /// `kernel_log` returns new faults, which are printed, too, with each sample.
  void print_to(std::FILE* out, std::function<std::vector<std::string>()> kernel_log);
  void add(const nlohmann::json& sample);
  /// Adds all samples to the results of a soak that is over.
  Measurement complete(Measurement found, std::string_view ended);

 private:
  void print();

  Soak soak_;
  std::size_t printed_ = 0;  ///< number of samples that the lines so far are about
  std::FILE* out_ = nullptr;
  std::function<std::vector<std::string>()> kernel_log_;
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
  Surroundings surroundings() const { return looking_.valid() ? looking_.get() : Surroundings{}; }
  /// Last reported results.
  Result<Measurement> so_far() const { return measurement_from(parse_json(sofar_)); }
  SoakLog& soak() { return soak_; }

 private:
  const Host& host_;
  std::shared_future<Surroundings> looking_;
  SoakLog soak_;
  std::string phase_;
  std::string transfer_;
  std::string sofar_;
  bool shown_;  ///< standard error is a terminal
};

/// Measures; after a fault or a missing answer, once more with one transfer at a time, which identifies the pair. A
/// soak runs once; it has results, too, if it was interrupted or hung. An Error with the code `timeout`: the GPUs did
/// not answer.
Result<Measurement> measure_apart(const Apart& apart, CommandRunner& runner, Listener& listener);

}  // namespace p2pd::bench
