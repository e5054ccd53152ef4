// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/root.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace p2pd::test {

inline void spill(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline FileState regular(std::string content, mode_t mode = 0644) {
  FileState state;
  state.kind = FileState::Kind::regular;
  state.content = std::move(content);
  state.mode = mode;
  state.uid = ::geteuid();
  state.gid = ::getegid();
  return state;
}

template <class T>
ErrorCode code_of(const Result<T>& result) {
  REQUIRE_FALSE(result.has_value());
  return result.error().code;
}

inline void must(const Result<void>& result) {
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.has_value());
}

/// A tree "inside" with a secret beside it that no path may reach.
struct Jail {
  TemporaryDirectory directory;
  Root root;
  Jail() : root(make(directory)) {}
  static Root make(const TemporaryDirectory& directory) {
    spill(directory / "inside/etc/hello", "inside\n");
    spill(directory / "etc/hello", "outside\n");
    spill(directory / "secret", "outside\n");
    return Root::open(directory / "inside").value();
  }
  std::filesystem::path outside(const std::string& name) const { return directory / name; }
  std::filesystem::path real(const std::string& name) const { return (directory / "inside").string() + name; }
};

}  // namespace p2pd::test
