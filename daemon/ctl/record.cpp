// SPDX-License-Identifier: MIT
// p2pctl record DIR: writes this machine into a directory that every read-only verb takes as --root.
#include <fmt/format.h>

#include "base/record/record.hpp"
#include "ctl/print.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {

Result<int> record(const Context& context) {
  const auto runner = TRY(context.runner());
  const Host host = TRY(context.host(*runner));
  const std::string& directory = context.options.name;
  const Capture capture = TRY(record_machine(host, directory));
  if (context.options.json) {
    print_json("p2pd.record/1", {{"directory", directory},
                                 {"files", capture.files},
                                 {"commands", capture.commands},
                                 {"unreadable", capture.unreadable}});
    return kDone;
  }
  fmt::print("{} files and the output of {} commands in {}\n", capture.files, capture.commands, directory);
  for (const std::string& path : capture.unreadable) fmt::print("  not readable: {}\n", path);
  fmt::print("next: p2pctl doctor --root {}\n", directory);
  return kDone;
}

}  // namespace p2pd::ctl
