// SPDX-License-Identifier: MIT
// Parameters of checks and fixes, and numbers in JSON (base/json_members.hpp).
#include "base/parameters.hpp"

#include <array>
#include <cstdint>

#include "base/finding.hpp"
#include "base/json_members.hpp"
#include "catch.hpp"

using namespace p2pd;
using nlohmann::json;
using Type = Parameter::Type;

TEST_CASE("a value fits the type of its parameter") {
  const auto fits_type = [](Type type, const json& value) { return fits({"name", type, true, "meaning"}, value); };
  CHECK(fits_type(Type::boolean, true));
  CHECK_FALSE(fits_type(Type::boolean, 1));
  CHECK_FALSE(fits_type(Type::boolean, "true"));
  CHECK(fits_type(Type::integer, -3));
  CHECK_FALSE(fits_type(Type::integer, 3.0));
  CHECK_FALSE(fits_type(Type::integer, true));
  CHECK(fits_type(Type::string, ""));
  CHECK_FALSE(fits_type(Type::string, nullptr));
  CHECK(fits_type(Type::strings, json::array()));
  CHECK(fits_type(Type::strings, json::array({"a", "b"})));
  CHECK_FALSE(fits_type(Type::strings, json::array({"a", 1})));
  CHECK_FALSE(fits_type(Type::strings, "a"));
  CHECK(fits_type(Type::object, json::object()));
  CHECK_FALSE(fits_type(Type::object, json::array()));
}

TEST_CASE("the nearest known name, or none") {
  constexpr std::array<std::string_view, 4> known = {"parameters", "requires", "after", "check"};
  CHECK(did_you_mean("paramters", known) == "; did you mean \"parameters\"?");
  CHECK(did_you_mean("parameter", known) == "; did you mean \"parameters\"?");
  CHECK(did_you_mean("require", known) == "; did you mean \"requires\"?");
  CHECK(did_you_mean("chekc", known) == "; did you mean \"check\"?");
  CHECK(did_you_mean("check", known) == "; did you mean \"check\"?");
  CHECK(did_you_mean("banana", known).empty());
  CHECK(did_you_mean("", known).empty());
  CHECK(did_you_mean("x", known).empty());
  CHECK(did_you_mean("after", {}).empty());
  CHECK(did_you_mean(std::string(1'000'000, 'a'), known).empty());
}

TEST_CASE("a finding as JSON") {
  Finding finding;
  finding.verdict = Verdict::fail;
  finding.summary = "one GPU";
  finding.facts = {{"gpus", 1}};
  finding.evidence = {{"/sys/bus/pci/devices", "1 display device"}};
  finding.next = "Fit another one.";
  CHECK(to_json(finding) == json::parse(R"({"verdict": "fail", "summary": "one GPU", "facts": {"gpus": 1},
      "evidence": [{"source": "/sys/bus/pci/devices", "value": "1 display device"}], "next": "Fit another one."})"));
  CHECK_FALSE(finding.holds());
  CHECK(to_json(Finding{}).at("evidence").is_array());
}

TEST_CASE("an error becomes unknown, never pass") {
  const Finding finding = unknown(Error{ErrorCode::denied, "/x: Permission denied", "Run as root."});
  CHECK(finding.verdict == Verdict::unknown);
  CHECK_FALSE(finding.holds());
  CHECK(finding.summary == "/x: Permission denied");
  CHECK(finding.next == "Run as root.");
  CHECK(finding.facts.at("error") == "denied");
}

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
