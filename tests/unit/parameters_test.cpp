// SPDX-License-Identifier: MIT
#include "base/parameters.hpp"

#include <array>

#include "base/finding.hpp"
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
  CHECK(nearest("paramters", known) == "parameters");
  CHECK(nearest("parameter", known) == "parameters");
  CHECK(nearest("require", known) == "requires");
  CHECK(nearest("chekc", known) == "check");
  CHECK(nearest("check", known) == "check");
  CHECK(nearest("banana", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest("x", known).empty());
  CHECK(nearest("after", {}).empty());
  CHECK(nearest(std::string(1'000'000, 'a'), known).empty());
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
