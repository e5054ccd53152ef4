// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace p2pd {

/// Numbers of a version, compared in order: {565, 57, 1} is before {565, 77}.
using Version = std::vector<std::uint32_t>;

/// Parses "570.86.16" or "6.14": two to four decimal numbers with dots between, nothing else.
std::optional<Version> parse_version(std::string_view text);

std::string dotted(const Version& version);

/// Order of two versions by Debian's rules: digits compare as numbers, '~' sorts before everything, even the end,
/// letters before other characters. Negative, zero or positive; for kernel versions, which have no epoch.
int compare_versions(std::string_view one, std::string_view other);

}  // namespace p2pd
