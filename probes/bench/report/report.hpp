// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "probes/bench/measurement.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// Everything there is to tell of one run.
struct Report {
  Measurement measurement;
  std::vector<std::vector<Path>> paths;
  Thresholds thresholds;
  Uses wanted = usual_uses();
  Judgement judgement;
  std::vector<std::string> kernel_log;                ///< faults of these GPUs since the run began, see KernelLog
  nlohmann::json machine = nlohmann::json::object();  ///< see machine_facts
};

/// The whole report as JSON, schema "p2pd.bench/1": units in names; what --save writes and --against reads.
nlohmann::json to_json(const Report& report);

/// The verdict, the matrices people know from p2pBandwidthLatencyTest, remarks, what did not run, advice; `colour`:
/// ANSI, by grade. Names and log lines reach the terminal as printable ASCII only.
std::string matrices(const Report& report, bool colour);

/// Where the time went, a line per phase.
std::string phase_table(const Measurement& measurement);

/// At most forty lines of ASCII for a bug report: machine, seed, srcversion, ACS, IOMMU domain, transport, and for each
/// pair what the writer and what the owner read; many pairs are condensed, those that fail first.
std::string bug_report(const Report& report);

/// Settings worth making on this machine, each with its evidence: NCCL, pinning, parallelism, GPUDirect RDMA.
std::vector<std::string> advice(const Report& report);

/// The gain over an earlier report: a line per pair and per collective, then one that sums it up; what cannot be
/// compared (other GPUs, a test that did not run) is said.
std::vector<std::string> gain(const nlohmann::json& before, const Report& after);

}  // namespace p2pd::bench
