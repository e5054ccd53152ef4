// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/hardware/pcie_path.hpp"
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
nlohmann::json to_json(const Thresholds& thresholds);
/// Thresholds with those named in `json` replaced; unknown names, non-numbers and shares out of 0..2 are errors.
Result<Thresholds> thresholds_from(const nlohmann::json& json);

enum class Grade { pass, warn, fail, not_judged };
std::string_view to_string(Grade grade);

/// One sentence about one pair or about the run, with its numbers.
struct Remark {
  Grade grade = Grade::pass;
  int from = -1;  ///< -1: the whole run
  int to = -1;
  std::string test;           ///< "bytes", "copy", "both", "chase", "asymmetry", "access", ...
  std::string text;           ///< "GPU 0 -> GPU 1: 12.1 GB/s is 42 % of 28.8 GB/s (Gen4 x16 ...); fails below 50 %"
  std::string transfer = {};  ///< for "bytes": the exact test, "store"; empty: not one alone
};

/// Verdict on a run.
struct Judgement {
  bool proven = false;                     ///< every ordered pair is fit for every wanted use
  bool limited = false;                    ///< not proven, but every pair is fit for some use
  std::vector<Fitness> fit;                ///< for every use, wanted or not
  std::vector<std::vector<Grade>> grades;  ///< [from][to]: the worst remark of the ordered pair
  std::vector<Remark> remarks;             ///< worst first; no passes
  std::string summary;                     ///< one line: the result for a person
};

/// Judges `measurement` against `paths` (see paths_between; NVLink pairs take their rate from the measurement).
/// Wrong bytes, refused peers, a missing test and an impossible rate fail; a slow pair warns or fails by fraction;
/// P2P slower than staged copies is no more than a warning. GPUs in use: bytes are judged, speed is not.
/// A non-empty `kernel_log` (see KernelLog) fails: correct bytes together with a fault of a GPU prove nothing.
/// A remark that concerns none of the `wanted` uses is a warning.
Judgement judge(const Measurement& measurement, const std::vector<std::vector<Path>>& paths,
                const Thresholds& thresholds, const std::vector<std::string>& kernel_log = {},
                const Uses& wanted = usual_uses());

}  // namespace p2pd::bench
