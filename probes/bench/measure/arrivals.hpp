// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

/// One transfer that fills a strip, except a guard band at each end.
Slots one_slot(u64 strip_bytes);

/// One transfer that fills a buffer, without guard bands.
Slots whole(u64 bytes);

/// Enqueues the store kernel's 16-byte stores of a transfer into a strip, without any fault.
Result<void> store_strip(const OpenGpu& from, cuda::CUdeviceptr strip, const Slots& slots, u64 key);

/// Lets a GPU verify, as OpenGpu::verify() does, and waits for it.
Result<Seen> look(OpenGpu& gpu, cuda::CUdeviceptr address, const Slots& slots, u64 key, u64 poison, Load how);

/// Error, `busy`, with the reason why no data can be sent over this pair.
Result<void> can_send(const Pair& pair);

/// Strips of GPUs' memory as destinations of transfers: poisoned first, and verified by their owners after all
/// transfers.
class Arrivals {
 public:
  struct Expected {
    Transfer transfer;
    cuda::CUdeviceptr strip;
  };

  explicit Arrivals(Bench& bench) : bench_(&bench) {}

  /// New transfer that fills this strip of Pair::to, which is poisoned in the order of its stream. An Error in place of
  /// the strip is the reason in Pair::not_run.
  Result<void> expect(std::string_view test, Pair& pair, const Result<cuda::CUdeviceptr>& strip, u64 strip_bytes);
  const std::vector<Expected>& expected() const { return expected_; }
  /// Lets the owners verify, all at once, into Pair::verified_bytes and Measurement::wrong. Skips tests that
  /// Pair::not_run names.
  Result<void> verify();

 private:
  Bench* bench_;
  std::vector<Expected> expected_;
};

}  // namespace p2pd::bench
