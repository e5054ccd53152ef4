// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/measurement.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "probes/bench/collectives/others.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// All data of one run.
struct Report : BenchReport {
  Thresholds thresholds;
  Uses wanted = usual_uses();
  std::vector<Other> others;                          ///< other benchmarks that were run, too
  nlohmann::json machine = nlohmann::json::object();  ///< see machine_facts
};

/// Report as JSON, schema "p2pd.bench/1": units in names; written by --save and read by --against.
nlohmann::json to_json(const Report& report);

/// The verdict in one line.
std::string verdict_line(const Judgement& judgement, bool colour);

/// Report as text, without the verdict: the matrices known from p2pBandwidthLatencyTest, remarks, tests that did not
/// run, advice. `colour`: ANSI, by grade. Names and log lines are printed as printable ASCII only.
std::string matrices(const Report& report, bool colour);

/// Table of times, a line per phase.
std::string phase_table(const Measurement& measurement);

/// Text of at most forty lines of ASCII for a bug report: machine, seed, srcversion, ACS, IOMMU domain, transport, and
/// for each pair the results of the writer and the owner; many pairs are condensed, failing ones first.
std::string bug_report(const Report& report);

/// Recommended settings for this machine, each with its evidence: NCCL, pinning, parallelism, GPUDirect RDMA.
std::vector<std::string> advice(const Report& report);

/// Gain over an earlier report: a line per pair and per collective, then a summary line. Reports what cannot be
/// compared (other GPUs, a test that did not run).
std::vector<std::string> gain(const nlohmann::json& before, const Report& after);

}  // namespace p2pd::bench
