// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "machine/hardware/measurement.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd::bench {

using Uses = std::vector<P2pUse>;

/// Test of the remarks about NCCL's own runs.
inline constexpr char kCollectives[] = "collectives";

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
std::string fit_line(const Judgement& judgement);

/// Fractions of a path's payload limit below which a one-way copy warns or fails.
struct Shares {
  double warn = 0;
  double fail = 0;
};

/// Thresholds of the judgement; a plan may set each. Defaults from field figures, see config/plans.
struct Thresholds {
  Shares pcie_switch{0.85, 0.60};
  Shares one_socket{0.75, 0.50};
  Shares one_socket_intel{0.60, 0.40};
  Shares cross_socket{0.60, 0.35};
  Shares nvlink{0.80, 0.60};
  double over_raw = 1.01;        ///< a rate above this times the raw link rate is impossible: fail
  double both_over_one = 1.5;    ///< both ways over one way, below: warn (ACS redirect)
  double asymmetry_warn = 0.15;  ///< difference of the two directions, as a fraction of the faster
  double asymmetry_fail = 0.50;
  double chase_ns = 3000;        ///< latency above: fail
  double chase_cross_ns = 5000;  ///< the same across sockets
};

/// Thresholds by their names in a plan, "one_socket.warn", "chase_ns", with their values.
nlohmann::json to_json(Thresholds thresholds);
/// Thresholds with those named in `json` replaced; unknown names, non-numbers and shares out of 0..2 are errors.
Result<Thresholds> thresholds_from(const nlohmann::json& json);

/// Judges `measurement` against `paths` (see paths_between; NVLink pairs take their rate from the measurement).
/// Wrong bytes, refused peers, a missing test and an impossible rate fail; a slow pair warns or fails by fraction;
/// P2P slower than staged copies is no more than a warning. GPUs in use: bytes are judged, speed is not.
/// A non-empty `kernel_log` (see KernelLog) fails: correct bytes together with a fault of a GPU prove nothing.
/// A remark that concerns none of the `wanted` uses is a warning.
Judgement judge(const Measurement& measurement, const std::vector<std::vector<Path>>& paths,
                const Thresholds& thresholds, const std::vector<std::string>& kernel_log = {},
                const Uses& wanted = usual_uses());

}  // namespace p2pd::bench
