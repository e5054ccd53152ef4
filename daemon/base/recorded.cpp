// SPDX-License-Identifier: MIT
#include "base/recorded.hpp"

#include <fmt/format.h>

#include "base/json_members.hpp"
#include "base/record_content.hpp"

namespace p2pd {
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
  const nlohmann::json all = machine.is_object() ? machine.value("free_bytes", nlohmann::json()) : nlohmann::json();
  const auto found = all.is_object() ? all.find(std::string(path)) : all.end();
  if (found == all.end())
    return fail(ErrorCode::not_found, fmt::format("not part of this machine record: free space in {}", path));
  if (const auto bytes = json_number<std::uint64_t>(*found)) return *bytes;
  return fail(ErrorCode::invalid, fmt::format("{}: free_bytes of {} is not a number of bytes", kDescription, path));
}

}  // namespace p2pd
