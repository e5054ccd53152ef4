// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

struct Remark;

using Uses = std::vector<P2pUse>;

/// Fitness of all pairs of GPUs for one use.
struct Fitness {
  enum class Kind { fit, unfit, not_tested };
  P2pUse use = P2pUse::copies;
  Kind kind = Kind::not_tested;
  std::string why;  ///< reason why it is not fit, or was not tested, or a reservation; may be empty
};
/// Test of the remarks about NCCL's own runs.
inline constexpr char kCollectives[] = "collectives";
std::string_view to_string(Fitness::Kind kind);

/// Tests that a pair needs to be fit for `uses`, each once.
std::vector<std::string_view> essential_tests(const Uses& uses);
/// True if a failing remark concerns a use; a remark that concerns no single use concerns all.
bool concerns(const Remark& remark, P2pUse use);
/// Fitness for every use, from the measurement and the failing remarks.
std::vector<Fitness> fitness(const Measurement& run, const std::vector<Remark>& remarks);
/// Reason why a test of a pair did not run; empty: it ran, or the reason is unknown.
std::string why_not_run(const Measurement& run, const Pair& pair, std::string_view test);
bool has_run(const Measurement& run, const Pair& pair, std::string_view test);

/// "fit for copies, nccl; not for custom-all-reduce; atomics not tested"
std::string fit_line(const std::vector<Fitness>& all);
nlohmann::json to_json(const Fitness& fitness);

}  // namespace p2pd::bench
