// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "machine/hardware/measurement.hpp"

namespace p2pd::bench {

/// Request for a run.
struct Asked {
  bool quick = false;  ///< bytes and one size of speed: for every boot
  bool full =
      false;  ///< also a second process, for IPC, all-reduce and atomics, and every repetition of the handshakes
  bool managed = false;       ///< with `full`: managed memory, too
  bool compressible = false;  ///< with `full`: compressible memory, too
  double soak_minutes = 0;    ///< above 0: repeats copies, stores, loads and the all-reduce that long; with `full`
  bool sweep = false;         ///< an address tag in every 2 MiB page of free memory
  bool alone =
      false;  ///< one transfer at a time, each reported before it begins: identifies the one at which a run ended
  std::vector<std::string> tests;    ///< the only ones to run, of kNamedTests; empty: all of this run
  int iterations = 3;                ///< of each timed figure
  int buffer_mib = 512;              ///< largest transfer, if memory allows
  std::vector<std::string> without;  ///< PCI addresses of GPUs that take no part
  bool all_pairs = false;            ///< expects peers between all GPUs, not within groups only
  std::string fault;                 ///< fault to seed, for tests: see kFaults

  bool wants(std::string_view test) const { return tests.empty() || std::ranges::find(tests, test) != tests.end(); }
};

/// Test that can be named, as in reports.
struct NamedTest {
  std::string_view name;
  std::string_view text;                          ///< for a person, at most 60 characters
  bool Asked::*needs = nullptr;                   ///< kind of run that has it; null: the default one
  std::optional<Figure> Pair::*figure = nullptr;  ///< its result; null: Pair::verified_bytes, or one of the whole run
};
inline constexpr NamedTest kNamedTests[] = {
    {"copy-push", "copies by the GPU that sends"},
    {"copy-pull", "copies by the GPU that receives"},
    {"store", "stores by a kernel; the writer reads them back, too"},
    {"load", "loads by a kernel"},
    {"load-plain", "loads that a cache may answer"},
    {"handshake-push", "data stored before a flag, as NCCL's Simple protocol does"},
    {"handshake-pull", "data loaded after a flag, as vLLM's all-reduce does"},
    {"handshake-ll", "data with a flag in each word, as NCCL's LL protocol"},
    {"handshake-ll128", "data with a flag in each line, as NCCL's LL128; NVLink only"},
    {"vmm", "memory mapped by cuMemMap, as NCCL and PyTorch do"},
    {"pool", "memory of a memory pool"},
    {"ipc-store", "stores by another process, over CUDA IPC", &Asked::full},
    {"ipc-copy", "copies by another process, over CUDA IPC", &Asked::full},
    {"ipc-vmm", "memory of another process, passed as a descriptor", &Asked::full},
    {"staged", "rate and latency of a copy through host memory", nullptr, &Pair::staged_gb_s},
    {"copy-timed", "rate of copies, one way"},
    {"copy-both-timed", "rate of copies both ways at once"},
    {"store-timed", "rate of stores by a kernel"},
    {"load-timed", "rate of loads by a kernel"},
    {"all-to-all", "rate while every pair copies", nullptr, &Pair::busy_gb_s},
    {"chase", "latency of a load; \"load\" is tested before it", nullptr, &Pair::chase_ns},
    {"ping-pong", "latency of a flag, one way", nullptr, &Pair::ping_pong_ns},
    {"sweep", "an address tag in every 2 MiB page of free memory", &Asked::sweep},
    {kHostMemory, "host memory that GPUs share, as NCCL allocates it", &Asked::full},
    {kGraphReduce, "all-reduce by loads in a CUDA graph, as in vLLM", &Asked::full},
    {"atomics", "atomics of two GPUs on the same words", &Asked::full},
    {kCompressible, "compressible memory; may reach host memory instead", &Asked::compressible},
    {kManaged, "managed memory; may take all GPUs down until a reboot", &Asked::managed},
    {"collectives", "NCCL all-reduce and all-to-all, with P2P and without"},
};

/// Null: no test has this name.
inline const NamedTest* test_named(std::string_view name) {
  const auto* const found = std::ranges::find(kNamedTests, name, &NamedTest::name);
  return found == std::end(kNamedTests) ? nullptr : found;
}

}  // namespace p2pd::bench
