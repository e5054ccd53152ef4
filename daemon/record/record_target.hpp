// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "record/private_words.hpp"
#include "record/record_file.hpp"

namespace p2pd {

/// A machine record that is being captured. Paths are the host's, "/proc/cmdline".
class RecordTarget {
 public:
  /// `identity`: what no text of the record may hold.
  explicit RecordTarget(Identity identity) : identity_(std::move(identity)) {}

  void file(std::string_view path, std::string_view content);
  /// An empty file: that it is there, and what it is called, is the fact.
  void stand_in(std::string_view path, bool executable = false);
  /// With an empty file ".keep" in it, since a record holds no directory that is empty.
  void directory(std::string_view path) { stand_in(std::string(path) + "/.keep"); }
  void link(std::string_view path, const std::string& target);
  void command(RecordedCommand command);

  /// What vanished since it was listed, or never was there, is no part of the record; the rest is told.
  void leave_out(const std::string& path, const Error& error);
  const std::vector<std::string>& unreadable() const { return unreadable_; }

  MachineRecord record(nlohmann::ordered_json machine) &&;

 private:
  void put(std::string_view path, RecordFile file);

  Identity identity_;
  MachineRecord record_;
  std::vector<std::string> unreadable_;
};

}  // namespace p2pd
