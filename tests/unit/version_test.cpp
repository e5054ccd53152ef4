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

TEST_CASE("versions sort as dpkg sorts them") {
  const std::string_view ascending[] = {"~",
                                        "",
                                        "5.15.0-9-generic",
                                        "5.15.0-139-generic",
                                        "6.1.0-9-amd64",
                                        "6.1.0-37-amd64",
                                        "6.1.0-37-rt-amd64",
                                        "6.8.0~rc1-1-amd64",
                                        "6.8.0-60-generic",
                                        "6.8.0-60-lowlatency",
                                        "6.8.12-9-pve",
                                        "6.8.12-99999999999999999999999999-pve",
                                        "6.10"};
  for (std::size_t i = 0; i < std::size(ascending); ++i) {
    for (std::size_t j = 0; j < std::size(ascending); ++j) {
      INFO(ascending[i] << " and " << ascending[j]);
      const int order = compare_versions(ascending[i], ascending[j]);
      CHECK((order < 0) == (i < j));
      CHECK((order > 0) == (i > j));
    }
  }
  CHECK(compare_versions("6.01", "6.1") == 0);
}
