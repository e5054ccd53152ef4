// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "record/record.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// The directory of a machine record (tests/machines/README.md).
inline std::filesystem::path machine_path(const std::string& name) {
  return std::filesystem::path(P2PD_MACHINES) / name;
}

/// The names of all machine records, sorted.
inline std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(P2PD_MACHINES))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// Records `host`, and unpacks the text of the record into `directory`.
inline MachineRecord record_into(const Host& host, const std::filesystem::path& directory) {
  MachineRecord record = parse_record(to_text(record_machine(host, "copy").value())).value();
  REQUIRE(unpack(record, directory));
  return record;
}

/// Sessions of logind: a person at the screen, and the login screen.
inline constexpr char kPerson[] = "UID=1000\nUSER=ada\nSTATE=active\nREMOTE=0\nTYPE=wayland\nCLASS=user\nSEAT=seat0\n";
inline constexpr char kGreeter[] =
    "UID=117\nUSER=gdm\nSTATE=active\nREMOTE=0\nTYPE=wayland\nCLASS=greeter\nSEAT=seat0\n";

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
  /// Adds a process with these files open.
  void process(int pid, const std::string& comm, const std::string& cgroup,
               const std::vector<std::string>& open) const {
    const std::string directory = "proc/" + std::to_string(pid);
    file(directory + "/comm", comm + "\n");
    file(directory + "/cgroup", cgroup);
    std::filesystem::create_directories(path(directory + "/fd"));
    for (std::size_t i = 0; i < open.size(); ++i) link(directory + "/fd/" + std::to_string(i), open[i]);
  }
  /// Adds a session as logind keeps it.
  void session(const std::string& id, const std::string& what) const {
    file("run/systemd/sessions/" + id, "# This is private data. Do not parse.\n" + what);
  }
  std::filesystem::path path(const std::string& inside) const { return directory_ / inside; }
  Root root() const { return Root::open(directory_.path()).value(); }

  /// Finding of `probe`; commands are those of the record, or of `runner`.
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
