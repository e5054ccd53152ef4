// SPDX-License-Identifier: MIT
// Any text as a build log: a failure has a cause, a next step and a line that is in the text, short and printable.
#include "machine/modules/build_log.hpp"

#include <algorithm>

#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const auto found = build_failure(input);
  require(found.has_value(), "the table of signatures is broken");
  if (!*found) return;
  const BuildFailure& failure = **found;
  const auto lines = static_cast<std::size_t>(std::ranges::count(input, '\n')) + 1;
  require(!failure.cause.empty() && !failure.next.empty(), "a failure without cause or next step");
  require(failure.line_number >= 1 && failure.line_number <= lines, "a line that is not there");
  require(failure.line.size() <= 512 && std::ranges::none_of(failure.line, [](char c) { return c >= 0 && c < ' '; }),
          "a line that is long or not printable");
}
