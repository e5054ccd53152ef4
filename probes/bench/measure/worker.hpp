// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "probes/bench/device/gpu.hpp"
#include "probes/bench/measure/phases.hpp"
#include "probes/bench/measure/wrong.hpp"
#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

/// What a run is asked to do.
struct Asked {
  bool quick = false;     ///< bytes and one size of speed: for every boot
  bool full = false;      ///< a second process too, for IPC and atomics, and every repetition of the handshakes
  bool managed = false;   ///< with `full`: managed memory, too
  bool sweep = false;     ///< an address tag in every 2 MiB page of free memory
  bool alone = false;     ///< one transfer at a time, each told before it begins: names the one at which a run ended
  std::vector<std::string> without;  ///< PCI addresses of GPUs that take no part
  std::string fault;      ///< a fault to seed, for tests: see kFaults
};

/// Faults that tests seed into the real kernels, on GPU 0 -> GPU 1 alone.
constexpr std::string_view kFaults[] = {"own-buffer", "skip-store", "dead-direction", "old-nonce", "wrap-offset"};

/// Pairs that are worked on at the same time: none shares a GPU with another.
using Round = std::vector<std::pair<int, int>>;

/// Ordered pairs.
using Ordered = std::vector<std::pair<int, int>>;

/// A transfer that was told.
struct UnderWay {
  std::string test;
  int from = -1;
  int to = -1;
};

/// Everything that the parts of a run work with.
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
  bool enabled = false;  ///< peers are, or were tried to be
  std::optional<UnderWay> under_way{};  ///< with Asked::alone

  int count() const { return static_cast<int>(gpus.size()); }
  OpenGpu& gpu(int number) const { return gpus[static_cast<std::size_t>(number)]; }
  Pair& pair(int from, int to) const;
  const Path& path(int one, int other) const;
  /// Both ordered pairs of each pair whose peers could be enabled.
  std::vector<std::pair<int, int>> both_ways(const Round& round) const;
  /// Makes the peers of this round reachable, where not all are at once; waits for what runs.
  Result<void> connect(const Round& round);
  /// Waits for every GPU, and tells that they have answered.
  Result<void> finish() const;
  /// Calls `work` with all ordered pairs; with Asked::alone, with one after the other, each told before and waited for.
  Result<void> each(std::string_view test, const Ordered& ordered, const std::function<Result<void>(const Ordered&)>& work);
  /// With Asked::alone: what was enqueued is waited for, and another transfer told.
  Result<void> part(std::string_view test, int from, int to);
  /// The seeded fault, where it applies to this ordered pair.
  bool seeded(std::string_view fault, int from, int to) const { return asked.fault == fault && from == 0 && to == 1; }
};

/// Rounds in which every unordered pair comes once.
std::vector<Round> tournament(int gpus);
/// The same pairs in rounds of pairs that share no link either, for what is timed.
std::vector<Round> apart(const Bench& bench);

// The parts, in the order of a run.
Result<void> staged(Bench& bench);           ///< before peers are enabled: copies through the host
Result<void> enable_peers(Bench& bench);     ///< in ascending order; the helper process does it in descending order
Result<void> prove_bytes(Bench& bench);      ///< copies, stores, loads; who is wrong is tried again alone
Result<void> shake_hands(Bench& bench);      ///< flags and payload between running kernels; the ping-pong
Result<void> measure_speed(Bench& bench);    ///< rates, chase, everything at once; timed bytes verified
Result<void> prove_mappings(Bench& bench);   ///< VMM and pools
Result<void> sweep_memory(Bench& bench);     ///< --sweep

/// Hears of each phase as it begins, and again whenever the GPUs have answered, with what is known by then; with Asked::alone of each
/// transfer, too, as "test from to".
using Progress = std::function<void(std::string_view phase, std::string_view transfer, const Measurement& found)>;

/// Measures in this process: everything but collectives. An error ends the run early; once peers are enabled, what was found by then
/// comes back, with a Wrong of the kind `faulted`, where a GPU faulted or something was wrong before.
Result<Measurement> measure(const Host& host, const Asked& asked, const Progress& progress);

}  // namespace p2pd::bench
