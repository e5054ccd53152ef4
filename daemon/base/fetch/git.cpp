// SPDX-License-Identifier: MIT
#include "base/fetch/git.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace p2pd {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPackBytes = std::uint64_t{256} << 20;  // a driver's source is 70 MB

/// A git that this machine's configuration does not reach.
Command git(std::vector<std::string> words, std::chrono::milliseconds deadline) {
  Command command{.argv = {"git", "-c", "core.hooksPath=/dev/null", "-c", "credential.helper=", "-c",
                           "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30"},
                  .environment = {{"GIT_CONFIG_NOSYSTEM", "1"},
                                  {"GIT_CONFIG_GLOBAL", "/dev/null"},
                                  {"GIT_TERMINAL_PROMPT", "0"},
                                  {"GIT_ALLOW_PROTOCOL", "https:file"}},
                  .deadline = deadline};
  command.argv.insert(command.argv.end(), words.begin(), words.end());
  // SUDO_UID: git takes the repositories of whoever called sudo for root's own
  for (const char* name : {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "SUDO_UID"})
    if (const char* value = std::getenv(name); value != nullptr) command.environment[name] = value;
  return command;
}

Result<std::string> ask(CommandRunner& runner, const Command& command, const std::string& next = {}) {
  CommandResult result = TRY(runner.run(command));
  Result<void> success = require_success(command, result);
  if (success) return std::move(result.output);
  Error error = std::move(success).error();
  error.next = next;
  return Failure(std::move(error));
}

constexpr char kCheckRepository[] =
    "Check the address and the network; where it wants a password, clone it and name the clone.";

}  // namespace

Command bounded_fetch(Command fetch) {
  fetch.argv.insert(fetch.argv.begin() + 1, {"-c", "fetch.unpackLimit=1"});
  fetch.argv.insert(fetch.argv.begin(), {"prlimit", fmt::format("--fsize={}", kPackBytes)});
  return fetch;
}

Error explained_fetch(Error error) {
  if (error.message.find("invalid index-pack output") != std::string::npos)
    error.message += fmt::format(": what it sends is broken, or more than {} MiB", kPackBytes >> 20);
  return error;
}

Result<std::string> branch_commit(CommandRunner& runner, const GitBranch& branch) {
  const std::string wanted = "refs/heads/" + branch.name;
  const std::string text = TRY(ask(runner, git({"ls-remote", "--", branch.repository, wanted}, 60s), kCheckRepository));
  std::istringstream lines(text);
  std::vector<std::string> commits;
  for (std::string commit, name; lines >> commit >> name;)
    if (name == wanted) commits.push_back(commit);  // git matches the end of names: refs/x/refs/heads/... came, too
  if (commits.empty())
    return fail(ErrorCode::not_found, fmt::format("{} has no branch \"{}\"", branch.repository, branch.name),
                fmt::format("\"git ls-remote --heads {}\" lists its branches.", branch.repository));
  const std::string& commit = commits.front();
  if (commits.size() > 1 || commit.size() != 40 || commit.find_first_not_of("0123456789abcdef") != std::string::npos)
    return fail(ErrorCode::invalid,
                fmt::format("{} does not tell one commit for branch \"{}\"", branch.repository, branch.name),
                fmt::format("Look at \"git ls-remote {} {}\".", branch.repository, wanted));
  return commit;
}

Result<void> fetch_commit(CommandRunner& runner, const GitBranch& branch, const std::string& commit,
                          const std::filesystem::path& directory) {
  const std::string place = directory.string();
  TRY(ask(runner, git({"init", "--quiet", "--bare", "--template=", place}, 30s)));
  const auto done =
      ask(runner,
          bounded_fetch(git({"-C", place, "fetch", "--quiet", "--depth", "1", "--no-tags", "--", branch.repository,
                             "refs/heads/" + branch.name},
                            15min)),
          kCheckRepository);
  if (!done) return Failure(explained_fetch(done.error()));
  std::string fetched = TRY(ask(runner, git({"-C", place, "rev-parse", "--verify", "FETCH_HEAD^{commit}"}, 30s)));
  while (fetched.ends_with('\n')) fetched.pop_back();
  if (fetched == commit) return {};
  return fail(ErrorCode::busy, fmt::format("branch \"{}\" moved from {} to {} meanwhile", branch.name, commit, fetched),
              "Try again.");
}

Result<std::string> file_at_commit(CommandRunner& runner, const std::filesystem::path& directory,
                                   const std::string& commit, const std::string& path) {
  const std::string place = directory.string();
  const std::string listed = TRY(ask(runner, git({"-C", place, "ls-tree", commit, "--", path}, 30s)));
  if (!listed.starts_with("100"))  // mode of a regular file
    return fail(ErrorCode::not_found, fmt::format("commit {} has no file {}", commit, path));
  return ask(runner, git({"-C", place, "cat-file", "blob", commit + ":" + path}, 30s));
}

}  // namespace p2pd
