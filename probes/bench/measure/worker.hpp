// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/measurement.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "probes/bench/device/gpu.hpp"
#include "probes/bench/measure/asked.hpp"
#include "probes/bench/measure/wrong.hpp"

namespace p2pd::bench {

/// Faults that tests seed into the real kernels, on GPU 0 -> GPU 1 alone.
constexpr std::string_view kFaults[] = {"own-buffer", "skip-store", "dead-direction", "old-nonce", "wrap-offset"};

/// Limit of one wait inside a kernel: below the watchdog of a GPU with a display.
constexpr u64 kWaitLimitNs = 200'000'000;

/// Pairs that work at the same time: none shares a GPU with another.
using Round = std::vector<std::pair<int, int>>;

/// Ordered pairs.
using Ordered = std::vector<std::pair<int, int>>;

/// Results of verifying kernels, by GPU and number of the Seen.
using AllSeen = std::vector<std::vector<Seen>>;

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

/// Transfer that was reported.
struct UnderWay {
  std::string test;
  int from = -1;
  int to = -1;
};

/// Shared state of the parts of a run.
struct Bench {
  const Driver& driver;
  std::vector<OpenGpu>& gpus;
  Measurement& found;
  Keys& keys;
  const Asked& asked;
  const std::vector<std::vector<Path>>& paths;  ///< by GPU number; those of NVLink pairs have no links
  Phases& phases;
  bool few_peers = false;  ///< the driver allows fewer peers at once than there are GPUs: connect() for each round
  Round connected{};
  bool enabled = false;                 ///< peers are enabled, or an attempt was made
  std::optional<UnderWay> under_way{};  ///< with Asked::alone, or in a soak

  int count() const { return static_cast<int>(gpus.size()); }
  OpenGpu& gpu(int number) const { return gpus[static_cast<std::size_t>(number)]; }
  Pair& pair(int from, int to) const;
  const Path& path(int one, int other) const;
  /// Both ordered pairs of each pair whose peers could be enabled.
  Ordered both_ways(const Round& round) const;
  /// Enables the peers of this round, if not all are enabled at once; waits for running work first.
  Result<void> connect(const Round& round);
  /// Waits for every GPU, and reports that they have answered.
  Result<void> finish() const;
  /// Waits for every GPU, and reads all that was seen.
  Result<AllSeen> seen() const;
  /// Frees every Seen and all host bytes of every GPU, which must be idle.
  Result<void> forget() const;
  /// Calls `work` with all ordered pairs, which a soak reports before; with Asked::alone, with one after the other,
  /// each reported before and waited for.
  Result<void> each(std::string_view test, const Ordered& ordered,
                    const std::function<Result<void>(const Ordered&)>& work);
  /// Waits, with Asked::alone, for enqueued work, and reports another transfer.
  Result<void> part(std::string_view test, int from, int to);
  /// Reports this transfer as the one under way.
  void report(std::string_view test, int from, int to);
  /// True if the seeded fault applies to this ordered pair.
  bool seeded(std::string_view fault, int from, int to) const { return asked.fault == fault && from == 0 && to == 1; }
};

/// Rounds that contain every unordered pair of these GPUs once.
std::vector<Round> tournament(const std::vector<int>& gpus);
/// Rounds that contain every pair within groups once, groups side by side.
std::vector<Round> rounds_of(const Measurement& found);
/// The first of these rounds, as many as it takes until every GPU with a pair was in one.
std::vector<Round> each_link(const Measurement& found);
/// The pairs of these rounds in rounds of pairs that also share no link, for timing.
std::vector<Round> apart(const Bench& bench, const std::vector<Round>& rounds);

// Parts of a run, in order.
Result<void> staged(Bench& bench);        ///< before peers are enabled: copies through the host
Result<void> enable_peers(Bench& bench);  ///< in ascending order; the second process does it in descending order
/// Copies, stores, loads; a wrong transfer is repeated alone.
Result<void> prove_bytes(Bench& bench, const std::vector<Round>& rounds);
/// Last: the bytes of pairs of two groups that the driver calls peers, one pair after the other; joins them to the
/// pairs.
Result<void> prove_across(Bench& bench, std::vector<Pair> across);
Result<void> shake_hands(Bench& bench);     ///< flags and payload between running kernels; the ping-pong
Result<void> measure_speed(Bench& bench);   ///< rates, chase, everything at once; timed bytes verified
Result<void> prove_mappings(Bench& bench);  ///< VMM and pools
Result<void> prove_host_memory(Bench& bench, const Host& host);  ///< Measurement::host_memory
Result<void> sweep_memory(Bench& bench);                         ///< --sweep
/// Writes, or verifies, memory outside of all transfers, which must not change.
Result<void> canaries(Bench& bench, bool write);

/// Phase of a soak.
constexpr std::string_view kSoak = "soak";

/// Receives each phase as it begins, and again whenever the GPUs have answered, with the results so far; with
/// Asked::alone, and in a soak, each transfer, too, as "test from to".
using Progress = std::function<void(std::string_view phase, std::string_view transfer, const Measurement& found)>;

/// Measures in this process: everything but collectives. An error ends the run early. If peers are enabled, and a GPU
/// faulted or a result was wrong before, the results so far are returned, with a Wrong of the kind `faulted`.
Result<Measurement> measure(const Host& host, const Asked& asked, const Progress& progress);

}  // namespace p2pd::bench
