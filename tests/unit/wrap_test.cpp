// SPDX-License-Identifier: MIT
// Text is broken at words, and not within a command in quotes if one line has room for it.
#include "base/wrap.hpp"
#include "catch.hpp"

using namespace p2pd;

TEST_CASE("wrap: text is broken at words, and further lines have the indent of the first") {
  CHECK(wrap("", 0, 10) == "");
  CHECK(wrap("one two  three", 0, 80) == "one two three");
  CHECK(wrap("one two three", 2, 9) == "one two\n  three");
  CHECK(wrap("longer-than-the-width is not cut", 0, 8) == "longer-than-the-width\nis not\ncut");
  CHECK(wrap("a b", 9, 4) == "a\n         b");  // indented beyond the width
}

TEST_CASE("wrap: a command in quotes is not broken if one line has room for it") {
  CHECK(wrap("Run \"sudo update-grub\", then reboot.", 0, 20) == "Run\n\"sudo update-grub\",\nthen reboot.");
  CHECK(wrap("Run \"sudo update-grub\" now", 0, 12) == "Run \"sudo\nupdate-grub\"\nnow");
  CHECK(wrap("a \"b c\" \"d e\"", 0, 6) == "a\n\"b c\"\n\"d e\"");
  CHECK(wrap("an \"open quote has no end", 0, 12) == "an \"open\nquote has no\nend");
  CHECK(wrap("\"--args='a b'\" and \" alone", 0, 14) == "\"--args='a b'\"\nand \" alone");
}
