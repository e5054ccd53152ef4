// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "fake_runner.hpp"
#include "machines.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// A copy of a machine record, to be changed; without a name, an empty tree. Paths are relative.
class ChangedRecord {
 public:
  explicit ChangedRecord(const std::string& name = {}) {
    namespace fs = std::filesystem;
    if (!name.empty())
      fs::copy(machine_path(name), directory_.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  void file(const std::string& path, std::string_view content) const {
    std::filesystem::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path, std::ios::binary) << content;
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((directory_ / path).parent_path());
    std::filesystem::remove(directory_ / path);
    std::filesystem::create_symlink(target, directory_ / path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(directory_ / path); }
  std::filesystem::path path(const std::string& inside) const { return directory_ / inside; }
  Root root() const { return Root::open(directory_.path()).value(); }

  /// What `probe` says; commands are those of the record, or of `runner`.
  Result<Finding> check(const Probe& probe) const {
    RecordedRunner runner(root());
    return probe.check(Host(root(), runner), Parameters::object());
  }
  Result<Finding> check(const Probe& probe, FakeRunner& runner) const {
    return probe.check(Host(root(), runner), Parameters::object());
  }
  Finding look(const Probe& probe) const { return check(probe).value(); }

 private:
  TemporaryDirectory directory_;
};

inline bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace p2pd::test
