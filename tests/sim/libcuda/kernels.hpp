// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "tests/sim/libcuda/stream.hpp"

namespace p2pd::sim {

/// A kernel with its arguments.
struct Launch {
  Cost cost;
  Work work;
};

/// What the price of a kernel is found from.
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

}  // namespace p2pd::sim
