// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/measurement.hpp"
#include "report/document.hpp"

namespace p2pd::ctl {

/// Measurement in the history of a machine.
struct Measured {
  std::int64_t run = 0;  ///< 0: of a diagnosis
  std::string time;      ///< at which it ended, ISO 8601 UTC
  bench::BenchReport report;
};
/// Measurements of a document p2pd.history/1 that prove P2P, if only for some uses; newest first.
std::vector<Measured> proofs_in(const nlohmann::json& history);
/// The newest full one of the GPUs of the newest one, else the newest; null if there is none.
const Measured* fullest(const std::vector<Measured>& measurements);

using Grid = std::vector<std::vector<std::optional<double>>>;  ///< [from][to]; absent: not measured

/// Figure of every pair.
struct Matrix {
  std::string id;
  std::string title;
  std::string unit;
  std::optional<Grid> after;
  std::optional<Grid> before;  ///< of an earlier report, its GPUs matched by UUID
  std::string before_by;       ///< not empty: some values of `before` are of copies through host memory
  std::optional<Grid> limits;  ///< payload limit of the path; absent: the figure has none, or no path is known
};

/// Ring all-reduce of tensor parallelism over all GPUs, computed from the slowest copy and the longest latency.
struct RingTime {
  int tokens = 0;
  double bytes = 0;
  std::optional<double> before_us;
  double after_us = 0;
};

/// Part `proof` of a report.
struct ProofPart {
  Measured shown;                 ///< see fullest()
  std::optional<Measured> again;  ///< the newest measurement, if that is another one
  std::vector<Matrix> matrices;
  std::vector<RingTime> all_reduces;

  std::vector<std::string> addresses() const;
  /// One line about NCCL; empty: it did not run.
  std::string collectives() const;
  /// "ok", or the fault in the bytes of an ordered pair.
  std::vector<std::vector<std::optional<std::string>>> bytes() const;
  /// Gain from P2P, as lines of text: each pair before and now, NCCL, and the computed all-reduces.
  std::vector<std::string> gain_lines() const;
};
/// Nothing if no GPUs were measured.
std::optional<ProofPart> proof_of(const Sources& sources);

/// Keys `proof` and `all_reduces` of a report.
nlohmann::json json_of(const ProofPart& proof);
nlohmann::json json_of(const std::vector<RingTime>& times);

/// Key `soak`: {"minutes", "ended", "checked_bytes", "wrong", "points": [[seconds, slowest copy in GB/s, hottest GPU in
/// C or null], ...]}. A soak has samples.
nlohmann::json json_of(const bench::Soak& soak);

/// Key `pairs`: the paths of the machine, with the limits of the proof if it is of the same GPUs.
nlohmann::json pairs_with(const nlohmann::json& machine, const std::optional<ProofPart>& proof);

/// Key `before`: state of the measurement before the first change, and the reason if there is none.
nlohmann::json before_of(const nlohmann::json& baseline);

/// Key `numbers`: the main figures, as texts.
nlohmann::json numbers_of(const Sources& sources, const std::optional<ProofPart>& proof);

}  // namespace p2pd::ctl
