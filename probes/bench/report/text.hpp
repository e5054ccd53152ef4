// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/measurement.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// `text` as one line of printable ASCII: names from a driver and log lines may contain terminal sequences.
std::string plain(std::string_view text);

/// Limits `lines` to `most`; if some are dropped, the last one counts them.
std::vector<std::string> limited(std::vector<std::string> lines, std::size_t most);

/// "GPU 0 -> GPU 1"
std::string pair_name(int from, int to);
/// "GPU 0 -> GPU 1 did not answer in store", "GPU 0 -> GPU 1: faulted at store (the driver reports an error)"; "a GPU"
/// if the pair is not known.
std::string end_name(const Wrong& end);
/// "512 MiB", "4 B", "1.5 GiB"
std::string size_name(std::uint64_t bytes);
/// "20.1 to 20.4", or "20.1" if all values are that; `values` has at least one.
std::string range_name(const std::vector<double>& values);
/// "1 pair", "12 pairs"
std::string count_name(std::size_t count, std::string_view noun);

/// Grade of an ordered pair; not_judged if the judgement has none.
Grade grade_of(const Judgement& judgement, int from, int to);

/// Member of the machine's facts as text: lists joined by ", "; empty if absent, null or empty.
std::string fact(const nlohmann::json& facts, const char* key);
/// Facts about GPU `address`, an empty object if there are none.
nlohmann::json gpu_facts(const nlohmann::json& machine, const std::string& address);

/// Tests that did not run, with reasons, "sweep not run: ..."; those of one reason, and of several pairs, in one line.
std::vector<std::string> not_run_lines(const Measurement& measurement);

/// Result of a run about atomics between its GPUs.
struct AtomicsState {
  std::size_t pairs = 0;
  std::size_t native = 0;  ///< ordered pairs for which the driver reports native atomics
  std::size_t exact = 0;   ///< ordered pairs with right sums and tickets
  std::string problem;     ///< first pair with an error, and the error
};
AtomicsState atomics_state(const Measurement& measurement);
/// One line on atomics, with the meaning of "NS"; empty if there was nothing to test.
std::string atomics_line(const Measurement& measurement);

/// One line on the all-reduce in CUDA graphs: its times by size, or its first error; empty if it did not run.
std::string all_reduce_line(const Measurement& measurement);
std::string host_memory_line(const Measurement& measurement);

/// Changes of a soak's counters since its first sample, and the worst readings since sample `since`.
struct SoakState {
  std::optional<std::uint64_t> replays;  ///< of all GPUs; absent: not counted
  std::optional<std::uint64_t> aer;      ///< of all functions and severities
  std::optional<std::uint64_t> temperature_c;
  double slowest_gb_s = 0;
  std::vector<std::string> throttled;  ///< "power", "thermal"
  std::vector<std::string> links;      ///< "GPU 1 8 GT/s x16, was 16 GT/s x16"
};
SoakState soak_state(const Soak& soak, std::size_t since);
/// "5.00 min: 1.2 TiB checked, 24.1 GB/s slowest copy, 0 wrong, 61 C, 0 replays, 0 AER errors"; empty without samples.
std::string soak_line(const Soak& soak, std::size_t since);

/// "P2P/CUMEM x 24, SHM/direct x 8"
std::string transports_name(const Collectives& collectives);

/// All-reduce of the largest size that ran with P2P, or without; null if none did.
const Collective* largest_all_reduce(const Collectives& nccl, bool p2p);
/// Number of connected pairs for which NCCL did not use P2P.
std::size_t pairs_without_p2p(const Collectives& nccl);
/// Reason why P2P does not work for NCCL, "hangs with P2P: ..."; empty: it does, or NCCL fails without P2P, too.
std::string nccl_failure(const Collectives& nccl);
/// "NCCL 2.28.3: P2P on 56 of 56, all-reduce 20.6 GB/s, 14.5 without", or "NCCL: not tested (no libnccl found; ...)".
std::string nccl_line(const Collectives& nccl);

}  // namespace p2pd::bench
