// SPDX-License-Identifier: MIT
#include "report/html.hpp"

#include "catch.hpp"

using namespace p2pd::ctl;

TEST_CASE("report: what is escaped") {
  CHECK(escaped("<b>&\"it's\"</b>") == "&lt;b&gt;&amp;&quot;it&#39;s&quot;&lt;/b&gt;");
  CHECK(escaped("µs → ✓ 😀\n\tx") == "µs → ✓ 😀\n\tx");
  const std::string bad = "\xef\xbf\xbd";
  for (const char* broken :
       {"\x1b", "\x7f", "\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x80\xae", "\xe2\x81\xa7"})
    CHECK(escaped(broken).find(bad) != std::string::npos);
  CHECK(escaped("\xe2\x82"
                "a") == bad + bad + "a");
  CHECK(escaped("\xe2\x80\xae"
                "x") == bad + "x");
}
