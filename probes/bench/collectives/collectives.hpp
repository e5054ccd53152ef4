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
#include "machine/hardware/measurement.hpp"

namespace p2pd::bench {

// Names of collectives, as in nccl-tests.
constexpr std::string_view kAllReduce = "all_reduce";
constexpr std::string_view kAllToAll = "alltoall";

/// Bytes per rank of all-reduce; all-to-all runs the largest size. If memory is short the sizes shrink.
constexpr std::uint64_t kCollectiveBytes[] = {64ULL << 10, 8ULL << 20, 128ULL << 20};

/// `p2p-bench --collective-worker on|off --nccl PATH`: measures on every visible GPU, with P2P or without, and prints
/// the Collectives as JSON, the last line of standard output, or the Error on standard error. Returns the exit status.
int collective_worker(std::string_view p2p, const std::string& library);

/// Both runs of NCCL, without P2P and with it.
struct CollectiveRuns {
  std::string program;                    ///< p2p-bench
  std::string library;                    ///< path of libnccl
  std::string gpus = {};                  ///< UUIDs, separated by commas, in the order of their numbers
  std::string p2p_level = {};             ///< NCCL_P2P_LEVEL, unless the environment has one; empty: NCCL's own choice
  std::chrono::milliseconds deadline{0};  ///< of each run
};

/// Runs the workers one after the other and merges. P2P runs last: if the GPUs hang, the run without it is complete. A
/// failed worker is reported in Collectives::not_run, beside the results of the other; an Error is an interruption
/// only.
Result<Collectives> measure_collectives(CommandRunner& runner, const CollectiveRuns& runs);

/// The same with pairs named by the numbers of these GPUs, which were the ranks.
Collectives with_numbers_of(Collectives ranks, const std::vector<int>& gpus);

/// Runs of several groups of GPUs as one: the first that is not right, else the first, with the pairs of all.
Collectives as_one(std::vector<Collectives> groups);

// Steps of the functions above.

/// Variables of this process.
std::map<std::string, std::string> own_environment();
/// Command of a worker. It gets this process's environment, so that the user's settings for NCCL and CUDA apply, except
/// the choice of GPUs.
Command collective_command(const CollectiveRuns& runs, bool p2p);
/// Parses the last line of `output` that is a worker's JSON.
Result<Collectives> parse_worker_output(std::string_view output);
/// Merges both runs; version, level and transports are those of the run with P2P.
Collectives merge(Collectives on, Collectives off);
/// "2.28.3" for 22803, "2.8.4" for 2804.
std::string nccl_version(int code);
/// Connections by transport in NCCL's debug output, "P2P/CUMEM" or "SHM/direct": the first two parts of "via X/Y/...".
/// A connection that both ends report ("[send]", "[receive]") counts once.
std::map<std::string, int> nccl_transports(std::string_view log);
/// Transport by connected pair, "GPU 0 -> GPU 1"; of several, one that is not P2P.
std::map<std::string, std::string> nccl_pairs(std::string_view log);
/// Last "NCCL WARN" of the debug output; empty without one.
std::string nccl_warning(std::string_view log);

/// Fraction of a rank's bytes that crosses a link, as nccl-tests defines bus bandwidth.
double bus_factor(std::string_view collective, int ranks);
/// Number of elements after which the data repeats; a prime, so that every shift by a chunk of NCCL is visible.
constexpr std::size_t kPeriod = 262'139;
/// Data that `rank` sends, kPeriod elements: integers below 2^15, so that sums of floats are exact.
std::vector<float> rank_data(int rank);
/// Number of elements of `seen` that differ from the repeated `data`, from its index `start` on.
std::uint64_t wrong_elements(std::span<const float> seen, std::span<const float> data, std::size_t start);

}  // namespace p2pd::bench
