// SPDX-License-Identifier: MIT
#pragma once

#include "machine/catalogue/patched_source.hpp"
#include "staged.hpp"

namespace p2pd::test {

/// A repository that a test fills, with real git that reads no configuration.
class GitRepository {
 public:
  explicit GitRepository(std::filesystem::path place) : path(std::move(place)) {
    std::filesystem::create_directories(path);
    git({"init", "--quiet", "--initial-branch=main"});
  }
  /// Runs git; returns the first line of its output.
  std::string git(std::vector<std::string> words) const {
    Command command{{"git", "-C", path.string(), "-c", "core.safecrlf=false"}};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = {{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"},
                           {"GIT_AUTHOR_NAME", "a"},           {"GIT_AUTHOR_EMAIL", "a@b"},
                           {"GIT_COMMITTER_NAME", "a"},        {"GIT_COMMITTER_EMAIL", "a@b"}};
    ProcessRunner real;
    const CommandResult result = real.run(command).value();
    INFO(command.text() << "\n" << result.errors);
    REQUIRE(result.status == 0);
    return result.output.substr(0, result.output.find('\n'));
  }
  void put(const std::string& file, const std::string& content) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::ofstream(path / file, std::ios::binary) << content;
  }
  /// Commits the working tree; returns the id.
  std::string commit(const std::string& message) const {
    git({"add", "--all"});
    git({"commit", "--quiet", "--allow-empty", "--message=" + message});
    return git({"rev-parse", "HEAD"});
  }
  /// Removes the objects that `main` does not reach.
  void forget_the_rest() const {
    git({"reflog", "expire", "--expire=now", "--all"});
    git({"gc", "--quiet", "--prune=now"});
  }

  const std::filesystem::path path;
};

/// 30 lines of C, one of them changed.
inline std::string c_file(int changed = 0, const std::string& to = {}) {
  std::string text;
  for (int line = 1; line <= 30; ++line) text += line == changed ? to + "\n" : fmt::format("int line{};\n", line);
  return text;
}

/// A host with the repositories of its entry: releases 9.9.8 and 9.9.9 at /srv/git/nvidia, and at /srv/git/fork a
/// commit on 9.9.9, the patch, with one more commit on top.
struct Forks : Staged {
  Forks() : nvidia(directory / "srv/git/nvidia") {
    nvidia.put(".gitattributes",
               "*.txt text eol=crlf\nident ident\nbig filter=lfs\nexported export-subst export-ignore\n");
    nvidia.put("a.txt", "one\ntwo\n");
    nvidia.put("ident", "$Id$\n");
    nvidia.put("exported", "$Format:%H$\n");
    nvidia.put("kernel-open/conftest.sh", "#!/bin/sh\n");
    std::filesystem::permissions(nvidia.path / "kernel-open/conftest.sh", std::filesystem::perms(0755));
    std::filesystem::create_symlink("kernel-open", nvidia.path / "link");
    nvidia.put("src/gpu.c", c_file());
    nvidia.put("src/old.h", "");
    nvidia.put("version.mk", "NVIDIA_VERSION = 9.9.8\n");
    older = nvidia.commit("9.9.8");
    nvidia.git({"tag", "9.9.8"});
    nvidia.put("src/gpu.c", c_file(30, "int newer;"));
    nvidia.put("version.mk", "NVIDIA_VERSION = 9.9.9\n");
    base = nvidia.commit("9.9.9");
    nvidia.git({"tag", "--annotate", "--message=x", "9.9.9"});
    std::filesystem::copy(nvidia.path, directory / "srv/git/fork",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    fork.emplace(directory / "srv/git/fork");
    fork->put("src/gpu.c", patched_file);
    fork->put("src/p2p.h", "int p2p;\n");
    std::filesystem::remove(fork->path / "src/old.h");
    fork->put("README.md", "about the fork\n");
    pinned = fork->commit("the patch");
    fork->put("src/gpu.c", c_file());
    fork->commit("one more");
    release()["commit"] = base;
    release("9.9.8") = release();
    release("9.9.8")["commit"] = older;
    release("9.9.8")["runfile"]["path"] = "/NVIDIA-Linux-x86_64-9.9.8.run";
    pin(pinned);
  }
  void pin(const std::string& commit) {
    patch()["commit"] = commit;
    host();
  }
  /// Pins a commit of `change` on top of 9.9.9.
  void pin_change(const std::function<void(const GitRepository&)>& change) {
    fork->git({"reset", "--quiet", "--hard", base});
    change(*fork);
    pin(fork->commit("a change"));
  }

  GitRepository nvidia;
  std::optional<GitRepository> fork;
  std::string older, base, pinned;
  const std::string patched_file = [] {
    std::string text = c_file(5, "int patched;");
    return text.replace(text.find("int line30;"), 11, "int newer;");
  }();
};

}  // namespace p2pd::test
