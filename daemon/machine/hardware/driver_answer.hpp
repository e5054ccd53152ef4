// SPDX-License-Identifier: MIT
#pragma once

#include "base/host.hpp"
#include "base/json.hpp"

namespace p2pd {

/// Asks the loaded driver, if there is one, in a thread from now on, for driver_answer() of the host and its snapshots:
/// NVML takes as long as all checks. `runner` must outlive them.
void ask_driver(Host& host, CommandRunner& runner);

/// Command of p2p-bench with `options`, for the GPUs that take part.
Command bench_command(const Host& host, std::vector<std::string> options);

/// Answer of the loaded driver about every GPU that takes part and every pair, as that command prints it:
/// p2pd.driver-peers/1, see probes/bench/device/nvml.hpp. NVML can block in the kernel, so another process
/// queries it, with a deadline; a snapshot queries once. ErrorCode::not_found: p2p-bench is not installed.
Result<nlohmann::json> driver_answer(const Host& host);

}  // namespace p2pd
