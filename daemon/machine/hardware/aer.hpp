// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kAerSeverities[] = {"correctable", "nonfatal", "fatal"};

/// Errors of a severity that the kernel counted at a PCI function since boot, by name: "BadTLP", and the sum of all,
/// "TOTAL_ERR_COR". An Error if it counts none.
Result<std::map<std::string, std::uint64_t>> aer_counts(const Host& host, std::string_view address,
                                                        std::string_view severity);

}  // namespace p2pd
