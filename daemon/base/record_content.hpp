// SPDX-License-Identifier: MIT
// JSON of a record's content, readable in a diff: a text of complete lines is an array of its lines, another text a
// string, other bytes than UTF-8 are {"base64": "..."}. A link is {"link": TARGET}, an executable {"program": CONTENT}.
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
  std::string content;  ///< bytes; target of a link

  bool operator==(const RecordFile&) const = default;
};

/// A command that was run on the machine.
struct RecordedCommand {
  std::vector<std::string> argv;
  CommandResult result;
};

nlohmann::json to_json(const RecordedCommand& command);
nlohmann::json to_json(const RecordFile& file);

/// Reads that JSON back; nullopt if it has another form.
std::optional<RecordedCommand> recorded_command_from(const nlohmann::json& json);
std::optional<RecordFile> record_file_from(const nlohmann::json& json);

}  // namespace p2pd
