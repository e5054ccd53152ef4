// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "tests/sim/libcuda/machine.hpp"

namespace p2pd::sim {

/// The machine that the host itself is: its GPUs, the links between them, and each gate that fails as a fault.
/// Throws std::exception whose text is one line.
std::unique_ptr<Machine> machine_of_host();

}  // namespace p2pd::sim
