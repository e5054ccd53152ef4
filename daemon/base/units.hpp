// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace p2pd {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;  // bytes

}  // namespace p2pd
