// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/root.hpp"

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

/// `directory` as the root of a running host ("/"), which takes a chroot there and back; nothing unless root.
inline std::optional<Root> live_root(const std::filesystem::path& directory) {
  const int outside = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int here = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::optional<Root> root;
  if (outside >= 0 && here >= 0 && ::chroot(directory.c_str()) == 0) {
    if (auto opened = Root::open("/")) root = std::move(*opened);
    if (::fchdir(outside) != 0 || ::chroot(".") != 0 || ::fchdir(here) != 0) std::abort();
  }
  ::close(outside);
  ::close(here);
  return root;
}

}  // namespace p2pd::test
