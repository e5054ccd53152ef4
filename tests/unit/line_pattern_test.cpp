// SPDX-License-Identifier: MIT
#include "base/line_pattern.hpp"

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("line patterns") {
  const auto found = [](std::string_view pattern, std::string_view line) {
    return LinePattern::parse(pattern).value().found_in(line);
  };
  CHECK(found("abc", "xxabcxx"));
  CHECK_FALSE(found("abc", "ab"));
  CHECK(found("abc.*de+f", "abc de abc deeef"));
  CHECK_FALSE(found("abc.*de+f", "def abc df"));
  CHECK(found("abc[0-9]*x?:", "abc:"));
  CHECK(found("abc[0-9]*x?:", "abc123x:"));
  CHECK_FALSE(found("abc[0-9]*x?:", "abc123xx:"));
  CHECK(found("abc[^)]*\\)", "abc(1)"));
  CHECK(found("abc[]-]", "abc]"));
  const auto starts = [](std::string_view pattern, std::string_view line) {
    return LinePattern::parse(pattern).value().starts(line);
  };
  CHECK(starts("abc", "abcxx"));
  CHECK_FALSE(starts("abc", "xabc"));
  CHECK_FALSE(starts("aab", "aaab"));
  CHECK(starts("x?abc.*d", "abc d"));
  CHECK(found("aab", "aaab"));  // a start inside a failed one
  CHECK(found("\xc3\xa9t\xc3\xa9", "l'\xc3\xa9t\xc3\xa9"));
  for (const char* wrong : {"", "ab", "a.b.c", "abc(d)", "abc|abd", "abc{2}", "^abc", "abc$", "abc[d", "abc\\",
                            "abc\\d", "*abc", "abc**", "abc+?"})
    CHECK_FALSE(LinePattern::parse(wrong));
  CHECK(LinePattern::parse(std::string(63, 'a')));
  CHECK(found(std::string(63, 'a'), std::string(63, 'a')));
  CHECK_FALSE(LinePattern::parse(std::string(64, 'a')));
}
