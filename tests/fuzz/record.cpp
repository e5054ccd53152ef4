// SPDX-License-Identifier: MIT
// Any text as a machine record in one file: it is refused with its place, or is written as it was read, and unpacked
// where it belongs.
#include "record/record_file.hpp"

#include <iterator>

#include "fuzz.hpp"

FUZZ(record) {
  namespace fs = std::filesystem;
  const auto record = parse_record(std::string(input));
  if (!record) {
    require(record.error().code == ErrorCode::invalid && !record.error().next.empty(), "an error without a next step");
    return;
  }
  const std::string text = to_text(*record);
  const auto again = parse_record(text);
  require(again.has_value() && again->files == record->files && to_text(*again) == text,
          "a record that reads as another");
  const Tree tree;
  tree.write("outside", "kept");
  if (!unpack(*record, tree.directory / "record")) return;  // a name that is too long
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tree.directory / "record"))
    files += entry.symlink_status().type() == fs::file_type::directory ? 0 : 1;
  const std::size_t described = record->commands.size() + (record->expected ? 2 : 1);
  require(files == record->files.size() + described, "a file that is missing, or one too many");
  for (const auto& [path, file] : record->files)
    require(fs::is_symlink(tree.directory / ("record/" + path)) == (file.kind == RecordFile::Kind::link),
            "a file of another kind");
  require(std::distance(fs::directory_iterator(tree.directory.path()), {}) == 2, "a file that lies outside");
}
