// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/measurement.hpp"

namespace p2pd {

/// Distance of a pair of GPUs as NCCL sees it: it knows NUMA nodes, not sockets. In ascending order.
enum class NcclReach { unknown, nvl, pix, pxb, phb, sys };
/// Value of NCCL_P2P_LEVEL: "PHB"; empty for an unknown distance.
std::string_view to_string(NcclReach reach);
NcclReach nccl_reach(const Path& path);

/// Ordered pair with its medians in GB/s; a rate of 0 was not measured.
struct NcclPair {
  std::string name;  ///< "GPU 0 -> GPU 1"
  NcclReach reach = NcclReach::unknown;
  bool intel_root = false;
  double copy_gb_s = 0;    ///< P2P
  double staged_gb_s = 0;  ///< through host memory
};

/// Level that NCCL needs in order to use P2P wherever it is faster than host memory.
struct NcclNeed {
  std::size_t pairs = 0;
  std::size_t phb = 0;
  std::size_t sys = 0;
  std::size_t slower = 0;      ///< of sys: P2P is slower than a copy through host memory
  std::string example;         ///< first pair of the farthest kind
  std::string slower_example;  ///< with both rates
  NcclReach level = NcclReach::unknown;
  bool by_itself =
      true;  ///< NCCL goes that far without NCCL_P2P_LEVEL: up to PXB, on AMD hosts with two GPUs everywhere

  /// Reason for the level, one line, if NCCL does not choose it by itself.
  std::string why() const;
};
NcclNeed nccl_need(const std::vector<NcclPair>& pairs, std::size_t gpus);

/// The same for the pairs of a measurement, with the paths between its GPUs.
NcclNeed nccl_need(const bench::Measurement& run, const std::vector<std::vector<Path>>& paths);

/// The same for the GPUs of `host` that take part, with NVLink and rates from `report` if it is of these GPUs, else
/// with NVLink as the driver reports it. An Error: no bus.
Result<NcclNeed> nccl_need(const Host& host, const bench::BenchReport& report);

/// Report of the last full proof, which may be of an earlier boot; without GPUs if there is none. An Error: not
/// readable.
Result<bench::BenchReport> proof_report(const Host& host);

/// System-wide settings of NCCL. A user's ~/.nccl.conf, or the file in NCCL_CONF_FILE, takes precedence.
inline constexpr std::string_view kNcclConf = "/etc/nccl.conf";

/// Assignment of NCCL_P2P_LEVEL or NCCL_P2P_DISABLE.
struct NcclVariable {
  std::string name;
  std::string value;
  std::string source = {};  ///< "/etc/environment line 3"
  bool ours = false;        ///< in p2pd's block of kNcclConf

  std::string text() const;  ///< "/etc/environment line 3: NCCL_P2P_DISABLE=1"
};

/// Content of kNcclConf.
struct NcclConf {
  std::string text;
  std::string foreign;                   ///< text without p2pd's block
  std::string block;                     ///< p2pd's block; empty: none
  std::optional<NcclVariable> level;     ///< NCCL_P2P_LEVEL in force
  std::optional<NcclVariable> disabled;  ///< NCCL_P2P_DISABLE in force
};
NcclConf parse_nccl_conf(std::string_view text);
/// Reads the file; an absent one is empty.
Result<NcclConf> nccl_conf(const Host& host);

/// Assignments in a line of a shell script, of environment.d, of pam_env.conf ("NCCL_P2P_DISABLE DEFAULT=1") or of
/// systemd ("DefaultEnvironment=NCCL_P2P_DISABLE=1"), without `source`.
std::vector<NcclVariable> nccl_assignments(std::string_view line);

/// Outcome of proof and hardware for kNcclConf.
struct NcclPlan {
  NcclNeed need;
  NcclConf conf;
  std::vector<NcclVariable> environment;    ///< of logins and services, which comes before `conf`
  bool unfit = false;                       ///< the proof found P2P wrong for NCCL, or did not test it
  std::vector<NcclVariable> contradicting;  ///< of the environment and `conf`: keep NCCL from what it needs
  std::string block;                        ///< block that p2pd should have there; empty: none

  /// "/etc/environment line 3: NCCL_P2P_DISABLE=1 and /etc/nccl.conf line 1: NCCL_P2P_LEVEL=LOC"
  std::string contradiction() const;

  /// True if the file has that block, or one with the same level, or rightly none.
  bool is_in_force() const;
};
/// An Error: the bus or one of the files is not readable.
Result<NcclPlan> nccl_plan(const Host& host);

}  // namespace p2pd
