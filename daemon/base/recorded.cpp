// SPDX-License-Identifier: MIT
#include "base/recorded.hpp"

#include <nlohmann/json.hpp>

namespace p2pd {
namespace {

struct Recorded {
  std::vector<std::string> argv;
  CommandResult result;
};

Result<Recorded> parse(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto is = [&](const char* key, auto test) { return json.contains(key) && (json[key].*test)(); };
  const bool sound = json.is_object() && is("argv", &nlohmann::json::is_array) &&
                     is("status", &nlohmann::json::is_number_integer) && is("output", &nlohmann::json::is_string) &&
                     is("errors", &nlohmann::json::is_string);
  if (!sound) return fail(ErrorCode::invalid, "not a recorded command: argv, status, output and errors wanted");
  Recorded recorded{{}, {json["status"].get<int>(), json["output"], json["errors"]}};
  for (const nlohmann::json& word : json["argv"]) {
    if (!word.is_string()) return fail(ErrorCode::invalid, "argv holds something else than texts");
    recorded.argv.push_back(word);
  }
  return recorded;
}

void tell_lines(const Command& command, std::string_view output) {
  while (command.on_line && !output.empty()) {
    const std::size_t end = output.find('\n');
    command.on_line(output.substr(0, end));
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
  }
}

}  // namespace

Result<CommandResult> RecordedRunner::run(const Command& command) {
  const auto names = record_.list("/commands");
  if (!names && names.error().code != ErrorCode::not_found) return tl::unexpected(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!name.ends_with(".json")) continue;
    const std::string path = "/commands/" + name;
    Recorded recorded = TRY_IN(path, parse(TRY(record_.read(path))));
    if (recorded.argv != command.argv) continue;
    tell_lines(command, recorded.result.output);
    return std::move(recorded.result);
  }
  return fail(ErrorCode::not_found, "not part of this machine record: " + command.text());
}

}  // namespace p2pd
