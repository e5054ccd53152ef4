// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

/// One transfer of all of a strip but a guard band at each end.
Slots one_slot(u64 strip_bytes);

/// Enqueues the store kernel's 16-byte stores of a transfer into a strip, without any fault.
Result<void> store_strip(const OpenGpu& from, cuda::CUdeviceptr strip, const Slots& slots, u64 key);

/// Why nothing can go over this pair; empty when it can.
std::string no_access(const Pair& pair);

/// Strips of GPUs' memory where transfers are to arrive: poisoned, then, when all was sent, looked at by their owners.
class Arrivals {
 public:
  explicit Arrivals(Bench& bench) : bench_(&bench) {}

  /// A new transfer that fills this strip of `to`, which is poisoned in the order of its stream.
  Result<Transfer> expect(std::string_view test, int from, int to, cuda::CUdeviceptr strip, u64 strip_bytes);
  /// The owners verify, all at once, into Pair::verified_bytes and Measurement::wrong. What Pair::not_run names is
  /// passed over.
  Result<void> verify();

 private:
  struct Expected {
    Transfer transfer;
    cuda::CUdeviceptr strip;
    u32 seen = 0;  ///< the place of what its owner saw
  };
  Bench* bench_;
  std::vector<Expected> expected_;
};

}  // namespace p2pd::bench
