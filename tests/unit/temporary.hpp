// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace p2pd::test {

/// A directory of its own for one test, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "p2pd-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = std::filesystem::canonical(name);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The outside name of `inside`, an absolute path within the directory.
  std::filesystem::path operator/(const std::string& inside) const { return path_.string() + "/" + inside; }
  /// Makes a file, and the directories above it.
  void put(const std::string& inside, std::string_view content) const {
    std::filesystem::create_directories((*this / inside).parent_path());
    std::ofstream(*this / inside, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace p2pd::test
