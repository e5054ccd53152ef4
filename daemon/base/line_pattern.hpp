// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// A regular expression that is searched in a line, anywhere or at its start, in one step a byte for any line.
///
/// Supports the part of the common syntax that allows it: characters, `.`, [classes], each with `*`, `+` or `?`; `\`
/// makes the next character a plain one. No groups, alternatives, counts or anchors; at most 63 elements.
class LinePattern {
 public:
  /// Returns ErrorCode::invalid that names the unsupported part. A pattern has at least three plain characters in a
  /// row: a search for these dismisses most lines.
  static Result<LinePattern> parse(std::string_view text);

  bool found_in(std::string_view line) const { return matches(line, false); }
  /// Checks that the line begins with a match.
  bool starts(std::string_view line) const { return matches(line, true); }

 private:
  LinePattern() = default;
  bool matches(std::string_view line, bool at_start) const;
  void add(const std::array<bool, 256>& accepted, char quantifier);

  std::array<std::uint64_t, 256> accepts_{};  ///< elements that accept each byte, one bit each
  std::uint64_t repeats_ = 0;                 ///< elements with * or +
  std::uint64_t optional_ = 0;                ///< elements with * or ?
  unsigned count_ = 0;
  std::string literal_;  ///< longest run of plain characters: every match contains it
};

}  // namespace p2pd
