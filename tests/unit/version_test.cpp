// SPDX-License-Identifier: MIT
#include "base/version.hpp"

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("versions are two to four numbers, compared as numbers") {
  CHECK(parse_version("565.57.01").value() < parse_version("565.77").value());
  CHECK(parse_version("6.2").value() < parse_version("6.14").value());
  CHECK(dotted({6, 14}) == "6.14");
  for (const char* text :
       {"", "6", "6.", ".6", "6..1", "6.1-rc1", "a.b", "1.2.3.4.5", "6.99999999999", " 6.1", "-6.1", "6.1 "}) {
    INFO(text);
    CHECK_FALSE(parse_version(text));
  }
}
