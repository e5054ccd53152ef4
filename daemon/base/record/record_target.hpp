// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/record/private_words.hpp"
#include "base/record/record.hpp"

namespace p2pd {

/// A machine record that is being written: plain files of this process, not of the host that is recorded.
class RecordTarget {
 public:
  /// `identity`: what no text of the record may hold.
  RecordTarget(std::filesystem::path directory, Capture& capture, Identity identity = {})
      : directory_(std::move(directory)), capture_(&capture), identity_(std::move(identity)) {}

  /// Makes the directory; ErrorCode::state where it holds something.
  Result<void> prepare() const;
  Result<void> file(std::string_view path, std::string_view content) const;
  /// An empty file: that it is there, and what it is called, is the fact.
  Result<void> stand_in(std::string_view path, bool executable = false) const;
  /// With an empty file ".keep" in it, since git and some archives leave out what is empty.
  Result<void> directory(std::string_view path) const { return stand_in(std::string(path) + "/.keep"); }
  Result<void> link(std::string_view path, const std::string& target) const;

  /// What vanished since it was listed, or never was there, is no part of the record; the rest is told.
  void leave_out(const std::string& path, const Error& error) const {
    if (error.code != ErrorCode::not_found) capture_->unreadable.push_back(path);
  }
  void count_command() const { ++capture_->commands; }
  const Capture& capture() const { return *capture_; }

 private:
  Result<std::filesystem::path> place(std::string_view path) const;

  std::filesystem::path directory_;
  Capture* capture_;
  Identity identity_;
};

}  // namespace p2pd
