// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "probes/bench/report/judge.hpp"

using namespace p2pd;
using namespace p2pd::bench;

TEST_CASE("bench judge: every threshold can be set by its name") {
  const nlohmann::json defaults = to_json(Thresholds{});
  CHECK(defaults.size() == 16);
  CHECK(defaults["one_socket.warn"] == 0.75);
  for (const auto& [name, value] : defaults.items()) {
    CAPTURE(name);
    const nlohmann::json other = value.is_boolean() ? nlohmann::json(true) : nlohmann::json(value.get<double>() / 2);
    const auto changed = thresholds_from({{name, other}});
    REQUIRE(changed);
    nlohmann::json expected = defaults;
    expected[name] = other;
    CHECK(to_json(*changed) == expected);
  }
  CHECK(to_json(thresholds_from(defaults).value()) == defaults);
}

TEST_CASE("bench judge: thresholds that make no sense are errors") {
  struct Row {
    const char* json;
    const char* message;
  };
  for (const Row& row : std::vector<Row>{
           {R"({"one_soket.warn": 0.5})", R"(unknown threshold "one_soket.warn"; did you mean "one_socket.warn"?)"},
           {R"({"xyzzy": 1})", R"(unknown threshold "xyzzy")"},
           {R"({"nvlink.fail": "0.5"})", R"(threshold "nvlink.fail" is not a number)"},
           {R"({"nvlink.fail": 2.1})", R"(threshold "nvlink.fail" is 2.1; it must be in 0 to 2)"},
           {R"({"nvlink.fail": -0.1})", R"(threshold "nvlink.fail" is -0.1; it must be in 0 to 2)"},
           {R"({"chase_ns": -1})", R"(threshold "chase_ns" is -1; it must be in 0 to 1000000000)"},
           {R"([])", "thresholds are not a mapping"}}) {
    const auto thresholds = thresholds_from(nlohmann::json::parse(row.json));
    REQUIRE_FALSE(thresholds);
    CHECK(thresholds.error().message == row.message);
  }
  CHECK(thresholds_from({{"nvlink.fail", 2}, {"over_raw", 0}}));
}
