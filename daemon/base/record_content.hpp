// SPDX-License-Identifier: MIT
// The JSON of what a record holds, readable in a diff: a text whose every line ends is an array of its lines, another text a string,
// and what is not UTF-8 is {"base64": "..."}. A link is {"link": TARGET}, an executable {"program": CONTENT}.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "base/json.hpp"

namespace p2pd {

/// A file of a machine record.
struct RecordFile {
  enum class Kind { file, program, link };  ///< program: executable
  Kind kind = Kind::file;
  std::string content;  ///< bytes; of a link, its target

  bool operator==(const RecordFile&) const = default;
};

/// A command that was run on the machine.
struct RecordedCommand {
  std::vector<std::string> argv;
  CommandResult result;
};

nlohmann::json to_json(const RecordedCommand& command);
nlohmann::json to_json(const RecordFile& file);

/// The reverse; nothing where the JSON is no such thing.
std::optional<RecordedCommand> recorded_command_from(const nlohmann::json& json);
std::optional<RecordFile> record_file_from(const nlohmann::json& json);

}  // namespace p2pd
