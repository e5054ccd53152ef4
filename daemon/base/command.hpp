// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace p2pd {

/// A program to run in "/": never through a shell, in a session of its own without a terminal, umask 022.
struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment = {};      ///< over a minimal one: PATH, LC_ALL=C, HOME
  std::string input = {};                                   ///< standard input; /dev/null when empty
  std::chrono::milliseconds deadline{30'000};               ///< then the whole process group is killed
  bool while_silent = false;                                ///< the deadline counts from its last output, not from its start
  std::function<void(std::string_view line)> on_line = {};  ///< called for each line of output as it comes
  bool own_unit = false;  ///< must not end with p2pd: where a service of ours runs it, it runs in a unit of its own

  std::string text() const;  ///< argv as a person would type it
  std::map<std::string, std::string> full_environment() const;  ///< what it runs with
};

/// What a command left: exit status (128 + signal when killed) and its output, at most kOutputLimit bytes each;
/// where more came, a last line says how many bytes were dropped.
struct CommandResult {
  static constexpr std::size_t kOutputLimit = 16U << 20;
  int status = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// Runs commands; the seam behind which tests put another machine.
class CommandRunner {
 public:
  virtual ~CommandRunner() = default;
  /// Any exit status is a result; an Error means that it could not be run, ran out of time or was interrupted.
  virtual Result<CommandResult> run(const Command& command) = 0;
  /// Readable once commands are to end, and whatever else takes long with them; -1 for never.
  virtual int stop_fd() const = 0;
};

/// Runs commands as processes, inside `root` (chroot) when that is not "/".
///
/// At the deadline the process group gets SIGTERM, then SIGKILL; no wait is without bound. A command has ended when
/// its own process has: what it left running in its group is killed.
class ProcessRunner : public CommandRunner {
 public:
  /// `stop_fd` readable means: kill what runs and return ErrorCode::interrupted; -1 for never.
  explicit ProcessRunner(std::string root = "/", int stop_fd = -1) : root_(std::move(root)), stop_fd_(stop_fd) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return stop_fd_; }

 private:
  std::string root_;
  int stop_fd_;
};

/// Error unless `result` is status 0; carries argv, status and the end of the output.
Result<void> require_success(const Command& command, const CommandResult& result);

}  // namespace p2pd
