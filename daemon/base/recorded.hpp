// SPDX-License-Identifier: MIT
// JSON of a record's content, readable in a diff: a text of complete lines is an array of its lines, another text a
// string, other bytes than UTF-8 are {"base64": "..."}. A link is {"link": TARGET}, an executable {"program": CONTENT}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/command.hpp"
#include "base/host.hpp"
#include "base/json.hpp"
#include "base/root.hpp"

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

/// Answers commands from the `commands/` of a machine record; any other command that is not Command::outside is
/// not_found.
class RecordedRunner : public CommandRunner {
 public:
  explicit RecordedRunner(Root record, int stop_fd = -1) : record_(std::move(record)), stop_fd_(stop_fd) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return stop_fd_; }

  /// Checks that `root` is a machine record: it has a /machine.json.
  static bool is_record(const RootReader& root) { return root.exists("/machine.json"); }

 private:
  Root record_;
  int stop_fd_;
};

/// Free space of the file system of `path` for an ordinary process, in bytes. For a machine record: the value in its
/// machine.json for exactly this path, since the record is on the disk of another machine; not_found if it has no
/// such value.
Result<std::uint64_t> free_bytes(const Host& host, std::string_view path);

}  // namespace p2pd
