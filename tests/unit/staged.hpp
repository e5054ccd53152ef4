// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/action.hpp"
#include "base/log.hpp"
#include "base/probe.hpp"
#include "catch.hpp"
#include "engine/undo.hpp"
#include "machine/catalogue/staging.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// Runs real programs; names of host files in their arguments, as /var/..., become names below `root`.
class RootedRunner : public CommandRunner {
 public:
  explicit RootedRunner(std::string root) : root_(std::move(root)) {}
  Result<CommandResult> run(const Command& command) override {
    ran.push_back(command.text());
    Command real = command;
    for (std::string& word : real.argv) word = outside(word);
    for (auto& [name, value] : real.environment) value = outside(value);
    return inner_.run(real);
  }
  int stop_fd() const override { return stop; }
  long count(std::string_view program) const {
    return std::ranges::count_if(ran, [&](const std::string& text) { return text.starts_with(program); });
  }

  int stop = -1;
  std::vector<std::string> ran;

 private:
  std::string outside(std::string text) const {
    for (const std::string place : {"/var/", "/srv/"})
      for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += root_.size() + place.size())
        if (at == 0 || text[at - 1] == '=' || text[at - 1] == ' ') text.insert(at, root_);
    return text;
  }
  std::string root_;
  ProcessRunner inner_;
};

/// A host of one kernel and one catalogue entry, "test/main" on release 9.9.9, with the engine's undo.
class Staged {
 public:
  Staged() {
    log::set_level(log::Level::off);
    ::setenv("https_proxy", "http://127.0.0.1:9", 1);  // nobody listens: no test reaches the catalogue's own hosts
    for (const char* program : {"git", "make"}) program_named(program);
    file("boot/vmlinuz-6.1.0-1-amd64", "");
    file("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   16000000 kB\n");
    release() = {{"commit", std::string(40, '3')},
                 {"known", "verified"},
                 {"kernel_min", "3.10"},
                 {"runfile",
                  {{"path", "/XFree86/9.9.9/NVIDIA-Linux-x86_64-9.9.9.run"},
                   {"sha256", std::string(64, '2')},
                   {"bytes", 1000},
                   {"known", "verified"}}}};
    patch() = {{"repository", "file:///srv/git/fork"},
               {"branch", "main"},
               {"commit", std::string(40, '1')},
               {"known", "verified"},
               {"base", "9.9.9"},
               {"architectures", {{"Ada", "reported"}}}};
    with = {{"entry", "test/main"}};
  }
  ~Staged() { log::set_level(log::Level::info); }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  void file(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((directory / path).parent_path());
    std::ofstream(directory / path, std::ios::binary) << content;
  }
  void program_named(const std::string& name) const {
    file("usr/bin/" + name, "#!/bin/sh\n");
    std::filesystem::permissions(directory / ("usr/bin/" + name), std::filesystem::perms(0755));
  }
  nlohmann::json& release(const std::string& version = "9.9.9") { return drop_in["releases"][version]; }
  nlohmann::json& patch() { return drop_in["patches"]["test/main"]; }
  /// The host, with the present `drop_in`.
  Host host(ChangeRecorder* recorder = nullptr) {
    file("etc/p2pd/catalogue.d/test.yaml", drop_in.dump());  // JSON is YAML
    return {Root::open(directory.path()).value(), runner, recorder};
  }
  /// The entry that `with` names.
  CatalogueEntry entry() { return staged_entry(catalogue(host()).value(), with).value(); }
  Result<Finding> check(const Probe& probe) { return probe.check(host(), with); }
  /// Applies as the engine does: records the changes, and their result.
  Result<void> apply(const Action& action) {
    UndoStore undo = store();
    undo.begin({1, "step", std::string(action.id), std::string(action.id), with});
    Host changing = host(&undo);
    TRY(action.apply(changing, with));
    return undo.note_result();
  }
  /// Undoes everything, in another process.
  void undo() {
    UndoStore kept = store();
    while (kept.newest()) {
      REQUIRE(kept.restore_newest());
      REQUIRE(kept.forget_newest());
    }
  }
  /// Every path with kind, mode and size or content, but for what tests place themselves.
  std::string picture() const {
    std::vector<std::string> lines;
    for (const auto& found : std::filesystem::recursive_directory_iterator(directory.path())) {
      const auto mode = static_cast<unsigned>(found.symlink_status().permissions());
      std::ifstream content(found.path(), std::ios::binary);
      lines.push_back(
          fmt::format("{} {} {:o} {}", found.path().lexically_relative(directory.path()).string(),
                      static_cast<int>(found.symlink_status().type()), mode,
                      found.is_regular_file() ? std::string(std::istreambuf_iterator<char>(content), {}) : ""));
    }
    std::ranges::sort(lines);
    return fmt::format("{}", fmt::join(lines, "\n"));
  }

  TemporaryDirectory directory;
  TemporaryDirectory state;
  RootedRunner runner{directory.path().string()};
  nlohmann::json drop_in = {{"schema", "p2pd.catalogue/2"},
                            {"runfile_hosts", {"file:///nothing-here"}},
                            {"releases_at", "file:///srv/git/nvidia"}};
  Parameters with;

 private:
  UndoStore store() const {
    return UndoStore::open(Root::open(state.path()).value(), Root::open(directory.path()).value()).value();
  }
};

/// A small file system at `path`, removed with this object, in a mount namespace of this process; false unless root.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& path, const char* size, bool read_only = false) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = ::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0 &&
               ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", path.c_str(), "tmpfs", read_only ? MS_RDONLY : 0, size) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  explicit operator bool() const { return mounted_; }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

}  // namespace p2pd::test
