// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace p2pd {

/// Order of two versions by Debian's rules: digits compare as numbers, '~' sorts before everything, even the end,
/// letters before other characters. Negative, zero or positive; for kernel versions, which have no epoch.
int compare_versions(std::string_view one, std::string_view other);

}  // namespace p2pd
