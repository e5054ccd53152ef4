// SPDX-License-Identifier: MIT
#include "base/image_runner.hpp"

#include <algorithm>

namespace p2pd {
namespace {

/// A program that reads the files it is given, and starts nothing that it finds there.
struct OfflineProgram {
  std::string_view program;
  std::string_view database;  ///< directory for --admindir; empty: the arguments are files of the tree
};
constexpr OfflineProgram kOfflinePrograms[] = {
    {"modinfo", ""}, {"lsinitramfs", ""}, {"lsinitrd", ""}, {"dpkg-deb", ""}, {"dpkg-query", "/var/lib/dpkg"}};

constexpr const char* kNotRun = "\"p2pctl apply --root\" runs what it needs inside: only in an image that you trust.";

void remove_all(std::string& text, const std::string& part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

}  // namespace

bool is_not_run(const Error& error) { return error.code == ErrorCode::not_found && error.next == kNotRun; }

Result<CommandResult> ImageRunner::run(const Command& command) {
  if (command.outside) return here_.run(command);
  const auto* reader = command.argv.empty()
                           ? std::end(kOfflinePrograms)
                           : std::ranges::find(kOfflinePrograms, command.argv[0], &OfflineProgram::program);
  if (reader == std::end(kOfflinePrograms))
    return fail(ErrorCode::not_found,
                "`" + command.text() + "` was not run: to look at an image, nothing of it is started", kNotRun);
  Command here = command;
  if (reader->database.empty()) {
    for (std::string& word : here.argv)
      if (word.starts_with('/')) word = TRY(tree_.real_path(word)).string();
  } else {
    here.argv.insert(here.argv.begin() + 1, "--admindir=" + TRY(tree_.real_path(reader->database)).string());
  }
  const std::string top = TRY(tree_.real_path("/")).string();
  if (command.on_line)
    here.on_line = [&](std::string_view line) {
      std::string shown(line);
      remove_all(shown, top);
      command.on_line(shown);
    };
  CommandResult result = TRY(here_.run(here));
  for (std::string* text : {&result.output, &result.errors}) remove_all(*text, top);
  return result;
}

}  // namespace p2pd
