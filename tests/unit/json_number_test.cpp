// SPDX-License-Identifier: MIT
#include "base/json_members.hpp"

#include <cstdint>

#include "catch.hpp"

using namespace p2pd;
using nlohmann::json;

TEST_CASE("json_number: what fits is read, nothing else is cast") {
  CHECK(json_number<int>(json(7)) == 7);
  CHECK(json_number<int>(json(7U)) == 7);
  CHECK(json_number<int>(json(-7)) == -7);
  CHECK(json_number<double>(json(7)) == 7.0);
  CHECK(json_number<double>(json(5.03316e+56)) == 5.03316e+56);
  CHECK(json_number<std::uint64_t>(json::parse("18446744073709551615")) == UINT64_MAX);
  CHECK(json_number<std::int64_t>(json::parse("-9223372036854775808")) == INT64_MIN);
  for (const char* text : {"5.03316e+56", "-1", "4294967296", "18446744073709551616", "1.5", "7.0", "\"7\"", "true",
                           "null", "[7]", "{}"}) {
    CAPTURE(text);
    CHECK_FALSE(json_number<std::uint32_t>(json::parse(text)));
  }
  CHECK_FALSE(json_number<std::int64_t>(json::parse("18446744073709551615")));
  CHECK_FALSE(json_number<double>(json("7")));
}

TEST_CASE("json_number: a member that is absent or no such number reads as what is told") {
  const json object = {{"done", 3}, {"total", 5.03316e+56}, {"run", "3"}};
  CHECK(json_number<int>(object, "done") == 3);
  CHECK(json_number<int>(object, "total") == 0);
  CHECK(json_number<int>(object, "run", 9) == 9);
  CHECK(json_number<int>(object, "percent", 9) == 9);
  CHECK(json_number<int>(json(), "done", 9) == 9);
  CHECK(json_number<int>(json::array({1}), "done", 9) == 9);
}
