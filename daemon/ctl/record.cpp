// SPDX-License-Identifier: MIT
// p2pctl record FILE: writes this machine into one file that every read-only verb accepts as --root. With --unpack,
// writes the content of such a file into a directory.
#include "record/record.hpp"

#include <fmt/format.h>

#include "ctl/verb.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

namespace fs = std::filesystem;

/// Prints a summary of `record`, which was written to `path`.
int told(const Context& context, const MachineRecord& record, const std::string& path) {
  const nlohmann::json unreadable = record.machine.value("unreadable", nlohmann::ordered_json::array());
  if (context.options.json) {
    print_json("p2pd.record/1", {{"path", path},
                                 {"files", record.files.size()},
                                 {"commands", record.commands.size()},
                                 {"unreadable", unreadable}});
    return kDone;
  }
  fmt::print("{} files and the output of {} commands in {}\n", record.files.size(), record.commands.size(),
             harmless(path));
  for (const auto& name : unreadable)
    if (name.is_string()) fmt::print("  not readable: {}\n", harmless(name.get<std::string>()));
  fmt::print("next: p2pctl doctor --root {}\n", harmless(path));
  return kDone;
}

}  // namespace

Result<int> record(const Context& context) {
  const std::string& file = context.options.name;
  if (context.options.unpack) {
    const MachineRecord record = TRY(read_record(file));
    TRY(unpack(record, context.options.directory));
    return told(context, record, context.options.directory);
  }
  std::error_code error;
  if (fs::exists(fs::symlink_status(file, error)))
    return fail(ErrorCode::state, file + " exists, and is not overwritten", "Name a new file for the record.");
  const Host host = TRY(context.host());
  const MachineRecord record = TRY(record_machine(host, fs::path(file).stem()));
  std::string text = to_text(record);
  TRY_IN("this machine's record", parse_record(text));  // a record that --root would refuse is not written
  TRY(replace_file(file, std::move(text), 0644));
  return told(context, record, file);
}

}  // namespace p2pd::ctl
