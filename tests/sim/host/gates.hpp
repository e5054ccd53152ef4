// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/sim/host/gpu_host.hpp"

namespace p2pd::sim {

/// A gate of the whole driver, and the results of its start if the gate fails.
struct StartGate {
  std::string name;
  int cu_init = 0;
  int nvml_init = 0;
  bool (*open)(const GpuHost& host) = nullptr;
};

/// A gate between two GPUs: the fault if it fails, and NVML's status of the pair.
struct PairGate {
  std::string name;
  std::string fault;         ///< a kind of tests/sim/libcuda
  unsigned nvml_status = 0;  ///< nvmlGpuP2PStatus_t
  bool (*open)(const GpuHost& host, const HostGpu& one, const HostGpu& other) = nullptr;
};

/// Requirements of P2P: the rows of gates.json, which is compiled in, with the predicates of their names.
struct Gates {
  std::vector<StartGate> start;
  std::vector<PairGate> pair;

  /// Throws std::exception if the file names a gate without a predicate, or lacks one that has one.
  static Gates read();
  static Gates read(const std::string& text);
};

}  // namespace p2pd::sim
