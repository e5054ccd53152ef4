// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "probes/bench/device/pattern.hpp"
#include "tests/sim/libcuda/stream.hpp"
#include "tests/sim/libcuda/traffic.hpp"

namespace p2pd::sim {

/// A kernel with its arguments.
struct Launch {
  Cost cost;
  Work work;
};

/// Inputs to the cost of a kernel.
struct Prices {
  const Simulation& simulation;
  int device;
  Grid grid;

  int owner(u64 address) const;
  Cost touch(u64 address, u64 bytes, Engine engine) const;
  /// Of `times` round trips, one after the other.
  Cost trips(u64 address, u64 times) const;
};

/// A kernel of probes/bench/device/kernels.cu, done by the host.
struct Kernel {
  std::string_view name;
  Launch (*prepare)(const Prices& prices, void** parameters);
};

/// Null: none of this name.
const Kernel* kernel(std::string_view name);

/// The kernel "handshake": one warp, whose counterpart runs on another stream at the same time.
void handshake(Operation& gpu, u64 mine, u64 theirs, bench::u32 sends, bench::u32 protocol, u64 rounds, u64 key,
               u64 limit_ns, u64 seen, u64 timing);

/// The kernel "all_reduce", whose counterpart runs on a stream of the other GPU; its blocks are one here.
void all_reduce(Operation& gpu, u64 theirs, u64 there, u64 mine, u64 here, u64 sum, u64 words, u64 key, u64 peer_key,
                u64 limit_ns, u64 seen);

/// Notes a wrong word, as every verifying kernel does.
void note_wrong(bench::Seen& seen, u64 at, u64 value);

}  // namespace p2pd::sim
