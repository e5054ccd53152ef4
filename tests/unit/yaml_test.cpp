// SPDX-License-Identifier: MIT
#include "base/yaml.hpp"

#include "catch.hpp"

using namespace p2pd;

namespace {

Result<nlohmann::json> json_of(const std::string& text) { return TRY(yaml::parse(text, "t.yaml")).json(); }

}  // namespace

TEST_CASE("yaml: plain words of YAML's core schema have their type as JSON, all else is text") {
  const struct {
    std::string yaml;
    std::string json;
  } cases[] = {
      {"true", "true"},
      {"false", "false"},
      {"~", "null"},
      {"null", "null"},
      {"", "null"},
      {"0", "0"},
      {"8192", "8192"},
      {"-5", "-5"},
      {"0x1f", "31"},
      {"9223372036854775807", "9223372036854775807"},
      {"\"true\"", R"("true")"},
      {"'null'", R"("null")"},
      {"\"\"", R"("")"},
      {"'6'", R"("6")"},
      {"\"0x1f\"", R"("0x1f")"},
      {"!!str 6", R"("6")"},
      {"|\n  6", R"("6\n")"},
      {"6.10", R"("6.10")"},
      {"1e3", R"("1e3")"},
      {"yes", R"("yes")"},
      {"on", R"("on")"},
      {"10de:2684", R"("10de:2684")"},
      {"12:30", R"("12:30")"},
      {"2026-08-22", R"("2026-08-22")"},
      {"6 7", R"("6 7")"},
      {"0x", R"("0x")"},
      {"0x-5", R"("0x-5")"},
      {"9223372036854775808", R"("9223372036854775808")"},
      {"a # b", R"("a")"},
      {"a#b", R"("a#b")"},
      {"{a: [1, {b: }], c: {}, d: []}", R"({"a":[1,{"b":null}],"c":{},"d":[]})"},
      {"{1: a, true: b}", R"({"1":"a","true":"b"})"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.yaml);
    const auto found = json_of("k: " + c.yaml + "\n");
    REQUIRE(found);
    CHECK(found->dump() == R"({"k":)" + c.json + "}");
    CHECK(*found == parse_json(found->dump()));
  }
  CHECK(json_of("k: 5\n").value()["k"].is_number_unsigned());  // as in JSON
}

TEST_CASE("yaml: JSON is read as what it says") {
  const std::string json = R"({"a":[1,-2,true,null,"3",""],"b":{"c":"x: y, #z \\ \" \u00e9 \n/"}})";
  CHECK(json_of(json).value() == parse_json(json));
  const std::string indented = parse_json(json).dump(1, '\t');
  CHECK(json_of(indented).value() == parse_json(json));
}

TEST_CASE("yaml: what cannot be JSON is refused, with file, line and key") {
  const auto error = [](const std::string& text) { return json_of(text).error().message; };
  CHECK(error("a:\n  b: 1\n  b: 2\n") == "t.yaml:3: a.b: given twice");
  CHECK(error("a:\n- {b: 1, b: 2}\n") == "t.yaml:2: a[0].b: given twice");
  CHECK(error("a:\n  [b]: 1\n") == "t.yaml:2: a: expected plain words as keys");
  CHECK(error("a:\n  ~: 1\n") == "t.yaml:2: a: expected plain words as keys");
  CHECK(error("a: &x 1\nb: *x\n") == "t.yaml:2: aliases (*name) are not allowed");
  CHECK(error("a: 1\n---\nb: 2\n") == "t.yaml:2: a second document (---); expected one");
  CHECK(error("a: " + std::string(40, '[')) == "t.yaml:1: nested deeper than 32 levels");
  std::string list = "a:\n";
  for (int i = 0; i <= 1000; ++i) list += "- x\n";
  CHECK(error(list) == "t.yaml:2: a: 1001 items; expected at most 1000");
}

TEST_CASE("yaml: in an object of a plan, a plain number is one, and all else is text") {
  const yaml::Node node = yaml::parse("{a: 1, b: '1', c: true, d: 0x10, e: -2, f: 1.5}", "t.yaml").value();
  const auto found = node.value({"options", Parameter::Type::object, false, ""});
  REQUIRE(found);
  CHECK(found->dump() == R"({"a":1,"b":"1","c":"true","d":16,"e":-2,"f":"1.5"})");
  for (const char* wrong : {"{a: ''}", "{a: ~}", "{a: [1]}", "{a: {b: 1}}", "{a: 1, a: 2}"}) {
    CAPTURE(wrong);
    CHECK_FALSE(yaml::parse(wrong, "t.yaml").value().value({"options", Parameter::Type::object, false, ""}));
  }
}
