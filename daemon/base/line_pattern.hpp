// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// A regular expression that is looked for in a line, anywhere or at its start, in one step a byte whatever the line holds.
///
/// The part of the common syntax that allows it: characters, `.`, [classes], each with `*`, `+` or `?`; `\` takes the
/// meaning of what follows away. No groups, alternatives, counts or anchors; at most 63 elements.
class LinePattern {
 public:
  /// ErrorCode::invalid names what cannot be. A pattern has at least three plain characters in a row, so that most
  /// lines are dismissed by a search for these.
  static Result<LinePattern> parse(std::string_view text);

  bool found_in(std::string_view line) const { return matches(line, false); }
  /// True where the line begins with it.
  bool starts(std::string_view line) const { return matches(line, true); }

 private:
  LinePattern() = default;
  bool matches(std::string_view line, bool at_start) const;
  void add(const std::array<bool, 256>& accepted, char quantifier);

  std::array<std::uint64_t, 256> accepts_{};  ///< per byte: the elements that take it, a bit each
  std::uint64_t repeats_ = 0;                 ///< elements with * or +
  std::uint64_t optional_ = 0;                ///< elements with * or ?
  unsigned count_ = 0;
  std::string literal_;  ///< the longest run of plain characters: every match has it
};

}  // namespace p2pd
