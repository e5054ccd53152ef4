// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "base/result.hpp"
#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

// Names of collectives, those of nccl-tests.
constexpr std::string_view kAllReduce = "all_reduce";
constexpr std::string_view kAllToAll = "alltoall";

/// What one process asks of NCCL, which keeps its settings for a process's life.
struct CollectivePlan {
  bool p2p = true;             ///< false: NCCL_P2P_DISABLE=1
  std::string p2p_level = {};  ///< NCCL_P2P_LEVEL; empty: the user's, else NCCL's own choice
  /// Of all-reduce, bytes per rank; all-to-all runs the largest. Where memory is short they shrink.
  std::vector<std::uint64_t> sizes_bytes = {64ULL << 10, 8ULL << 20, 128ULL << 20};
  int repetitions = 7;
};

/// Measures in this process, which must not have loaded NCCL yet: sets NCCL's environment, takes every GPU. Without
/// libnccl, or with one GPU, Collectives::not_run says so; what fails later is an Error with NCCL's last warning.
Result<Collectives> run_collectives(const CollectivePlan& plan);

/// `p2p-bench --collective-worker on|off`: prints what run_collectives() found as JSON, the last line of standard
/// output, or its Error on standard error. The exit status.
int collective_worker(std::string_view p2p);

/// Runs the workers of `program` one after the other, P2P allowed and not, each within `deadline`, and merges. A worker
/// that fails is told in Collectives::not_run, beside what the other found; an Error is an interruption only.
Result<Collectives> measure_collectives(CommandRunner& runner, const std::string& program,
                                        std::chrono::milliseconds deadline);

// The steps of the above.

/// A worker's command. It has this process's own environment: what the user set for NCCL and CUDA holds.
Command collective_command(const std::string& program, bool p2p, std::chrono::milliseconds deadline);
/// The last line of `output` that is a worker's JSON.
Result<Collectives> parse_worker_output(std::string_view output);
/// Version, level and transports are those of the run with P2P.
Collectives merge(Collectives on, Collectives off);
/// "2.28.3" of 22803, "2.8.4" of 2804.
std::string nccl_version(int code);
/// Connections by transport in NCCL's debug output, "P2P/CUMEM" or "SHM/direct": the first two parts of "via X/Y/...".
/// What both ends report ("[send]", "[receive]") counts once.
std::map<std::string, int> nccl_transports(std::string_view log);
/// The last "NCCL WARN" of the debug output, empty without one.
std::string nccl_warning(std::string_view log);

/// Part of a rank's bytes that crosses a link, as nccl-tests defines bus bandwidth.
double bus_factor(std::string_view collective, int ranks);
/// Repeats after this many elements; a prime, so that no shift by a chunk of NCCL's goes unseen.
constexpr std::size_t kPeriod = 262'139;
/// kPeriod elements of what `rank` sends: integers below 2^15, so that sums of floats are exact.
std::vector<float> rank_data(int rank);
/// Elements of `seen` that differ from the repeated `data`, of which it starts at `start`.
std::uint64_t wrong_elements(std::span<const float> seen, std::span<const float> data, std::size_t start);

}  // namespace p2pd::bench
