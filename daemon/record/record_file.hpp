// SPDX-License-Identifier: MIT
// A machine record as one text file: JSON of schema p2pd.machine/2, made for diffs and for sending
// (base/recorded.hpp).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "base/recorded.hpp"
#include "base/result.hpp"
#include "base/scratch_directory.hpp"

namespace p2pd {

/// Content of a machine record's directory (tests/machines/README.md).
struct MachineRecord {
  nlohmann::ordered_json machine;                   ///< machine.json
  std::optional<nlohmann::ordered_json> expected;   ///< expected.json
  std::map<std::string, RecordedCommand> commands;  ///< commands/NAME.json
  std::map<std::string, RecordFile> files;          ///< files by path in the directory, "proc/cmdline"
};

/// The text of the file.
std::string to_text(const MachineRecord& record);

/// Parses what to_text() wrote. `text` may come from a stranger: no file of the record is outside its directory, or in
/// another file.
Result<MachineRecord> parse_record(const std::string& text);
/// Reads a file of at most 64 MiB.
Result<MachineRecord> read_record(const std::filesystem::path& file);

/// Writes the files of `record` into `directory`, which must be absent or empty (ErrorCode::state). machine.json is
/// written last: a directory without it is not a whole record.
Result<void> unpack(const MachineRecord& record, const std::filesystem::path& directory);

/// Tree that --root names: a directory, or a record in one file, which is unpacked for the lifetime of the object.
class NamedRoot {
 public:
  static Result<NamedRoot> open(const std::filesystem::path& root);
  /// Checks that `root` names a record in one file, which cannot be written to.
  static bool is_file(const std::filesystem::path& root);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
  std::optional<ScratchDirectory> unpacked_;
};

}  // namespace p2pd
