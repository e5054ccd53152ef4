// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "record/private_words.hpp"
#include "record/record_file.hpp"

namespace p2pd {

/// A machine record during its capture. Paths are the host's, "/proc/cmdline".
class RecordTarget {
 public:
  /// `identity`: words that no text of the record may hold.
  explicit RecordTarget(Identity identity) : identity_(std::move(identity)) {}

  void file(std::string_view path, std::string_view content);
  /// Adds an empty file: only its existence and its name matter.
  void stand_in(std::string_view path, bool executable = false);
  /// Adds a directory with an empty file ".keep", since a record holds no empty directory.
  void directory(std::string_view path) { stand_in(std::string(path) + "/.keep"); }
  void link(std::string_view path, const std::string& target);
  void command(RecordedCommand command);

  /// Text that was added for `path`, or null.
  const std::string* text(std::string_view path) const;

  /// Skips a file that has vanished or never existed; adds a file with any other Error to unreadable().
  void leave_out(const std::string& path, const Error& error);
  const std::vector<std::string>& unreadable() const { return unreadable_; }

  MachineRecord record(nlohmann::ordered_json machine) &&;

 private:
  std::string place(std::string_view path) const;
  void put(std::string_view path, RecordFile file);

  Identity identity_;
  MachineRecord record_;
  std::vector<std::string> unreadable_;
};

}  // namespace p2pd
