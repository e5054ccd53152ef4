// SPDX-License-Identifier: MIT
#include "base/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace p2pd {

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    version.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != '.' || version.size() == 4) return std::nullopt;
  }
  if (version.size() < 2) return std::nullopt;
  return version;
}

std::string dotted(const Version& version) { return fmt::format("{}", fmt::join(version, ".")); }

}  // namespace p2pd
