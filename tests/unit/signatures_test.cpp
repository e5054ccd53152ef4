// SPDX-License-Identifier: MIT
#include "base/driver/signatures.hpp"

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("a table of signatures that is not sound is refused") {
  const std::string row = R"("log": "kernel", "means": "note", "patterns": ["abc"], "cause": "c", "source": "s")";
  const auto parse = [](const std::string& rows) {
    return parse_signatures(R"({"schema": "p2pd.signatures/1", "signatures": [)" + rows + "]}");
  };
  CHECK(parse("{\"id\": \"x\", " + row + "}"));
  for (const std::string& wrong : std::vector<std::string>{
           "", "1", "{" + row + "}", "{\"id\": \"x\", " + row + "},{\"id\": \"x\", " + row + "}",
           R"({"id": "x", "log": "kernel", "means": "failure", "patterns": ["abc"], "cause": "c", "source": "s"})",
           R"({"id": "x", "log": "kernel", "means": "note", "patterns": ["a|bcd"], "cause": "c", "source": "s"})",
           R"({"id": "x", "log": "kernel", "means": "note", "patterns": [], "cause": "c", "source": "s"})",
           R"({"id": "x", "log": "dmesg", "means": "note", "patterns": ["abc"], "cause": "c", "source": "s"})"})
    CHECK_FALSE(parse(wrong));
  CHECK_FALSE(parse_signatures("{}"));
}
