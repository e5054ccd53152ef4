// SPDX-License-Identifier: MIT
// yaml_to_json FILE: prints the YAML of FILE as JSON, in a raw string of C++. The build uses it for the compiled-in
// tables: programs read them at each start, and gpus.yaml takes 20 ms as YAML, 1 ms as JSON.
#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <iterator>

#include "base/yaml.hpp"

namespace {

p2pd::Result<std::string> json_of(const std::string& file) {
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const p2pd::yaml::Node root = TRY(p2pd::yaml::parse(text, file));
  return TRY(root.json()).dump();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const p2pd::Result<std::string> json = json_of(argc > 1 ? argv[1] : "");
    if (json)
      fmt::print("R\"table({})table\"\n", *json);
    else
      fmt::print(stderr, "{}\n", json.error().message);
    return json ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "yaml_to_json: unexpected: {}\n", error.what());
    return 1;
  }
}
