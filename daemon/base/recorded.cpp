// SPDX-License-Identifier: MIT
#include "base/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_members.hpp"
#include "base/sha256.hpp"
#include "base/utf8.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;

/// Converts `text` in UTF-8; printing the JSON replaces any other byte.
Json text_to_json(std::string_view text) {
  if (!text.empty() && !text.ends_with('\n')) return std::string(text);
  Json lines = Json::array();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(std::string(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::optional<std::string> text_from(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) return std::nullopt;
  std::string text;
  for (const Json& line : json) {
    if (!line.is_string()) return std::nullopt;
    text += line.get_ref<const std::string&>() + '\n';
  }
  return text;
}

bool has_only(const Json& json, const char* key) { return json.is_object() && json.size() == 1 && json.contains(key); }

Json bytes_to_json(std::string_view bytes) {
  if (is_utf8(bytes)) return text_to_json(bytes);
  return {{"base64", to_base64(bytes)}};
}

std::optional<std::string> bytes_from(const Json& json) {
  if (!has_only(json, "base64")) return text_from(json);
  return json["base64"].is_string() ? from_base64(json["base64"]) : std::nullopt;
}

}  // namespace

Json to_json(const RecordedCommand& command) {
  return {{"argv", command.argv},
          {"errors", text_to_json(command.result.errors)},
          {"output", text_to_json(command.result.output)},
          {"status", command.result.status}};
}

Json to_json(const RecordFile& file) {
  if (file.kind == RecordFile::Kind::link) return {{"link", file.content}};
  if (file.kind == RecordFile::Kind::program) return {{"program", bytes_to_json(file.content)}};
  return bytes_to_json(file.content);
}

std::optional<RecordedCommand> recorded_command_from(const Json& json) {
  const Json& argv = field_of(json, "argv");
  const auto status = json_number<int>(field_of(json, "status"));
  auto output = text_from(field_of(json, "output")), errors = text_from(field_of(json, "errors"));
  if (!status || !output || !errors || !argv.is_array() || !std::ranges::all_of(argv, &Json::is_string))
    return std::nullopt;
  return RecordedCommand{argv, {*status, *std::move(output), *std::move(errors)}};
}

std::optional<RecordFile> record_file_from(const Json& json) {
  using Kind = RecordFile::Kind;
  const bool program = has_only(json, "program");
  if (!has_only(json, "link")) {
    auto content = bytes_from(program ? json["program"] : json);
    if (!content) return std::nullopt;
    return RecordFile{program ? Kind::program : Kind::file, *std::move(content)};
  }
  const Json& target = json["link"];
  if (!target.is_string() || target.get_ref<const std::string&>().find('\0') != std::string::npos) return std::nullopt;
  return RecordFile{Kind::link, target};
}

namespace {

constexpr std::string_view kDescription = "/machine.json";
constexpr std::size_t kDescriptionLimit = 1U << 20;  // bytes

void tell_lines(const Command& command, std::string_view output) {
  while (command.on_line && !output.empty()) {
    const std::size_t end = output.find('\n');
    command.on_line(output.substr(0, end));
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
  }
}

}  // namespace

Result<CommandResult> RecordedRunner::run(const Command& command) {
  if (command.outside) return ProcessRunner("/", stop_fd_).run(command);
  const auto names = record_.list("/commands");
  if (!names && names.error().code != ErrorCode::not_found) return tl::unexpected(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!name.ends_with(".json")) continue;
    const std::string path = "/commands/" + name;
    auto recorded = recorded_command_from(nlohmann::json::parse(TRY(record_.read(path)), nullptr, false));
    if (!recorded)
      return fail(ErrorCode::invalid, path + ": not a recorded command: argv, status, output and errors wanted");
    if (recorded->argv != command.argv) continue;
    tell_lines(command, recorded->result.output);
    return std::move(recorded->result);
  }
  return fail(ErrorCode::not_found, "not part of this machine record: " + command.text());
}

Result<std::uint64_t> free_bytes(const Host& host, std::string_view path) {
  if (!RecordedRunner::is_record(host.files())) return host.files().free_bytes(path);
  const std::string text = TRY(host.files().read(kDescription, kDescriptionLimit));
  const nlohmann::json machine = parse_json(text);
  const nlohmann::json& found = field_of(field_of(machine, "free_bytes"), std::string(path).c_str());
  if (found.is_null())
    return fail(ErrorCode::not_found, fmt::format("not part of this machine record: free space in {}", path));
  if (const auto bytes = json_number<std::uint64_t>(found)) return *bytes;
  return fail(ErrorCode::invalid, fmt::format("{}: free_bytes of {} is not a number of bytes", kDescription, path));
}

}  // namespace p2pd
