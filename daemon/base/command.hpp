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

/// A program to run in "/": never through a shell, in its own session without a terminal, umask 022.
struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment = {};  ///< added to a minimal one: PATH, LC_ALL=C, HOME
  std::string input = {};                               ///< standard input; /dev/null when empty
  std::chrono::milliseconds deadline{30'000};           ///< time limit; then the whole process group is killed
  bool while_silent = false;  ///< the deadline counts from the last output, not from the start
  std::function<void(std::string_view line)> on_line = {};  ///< called for each line of output as it arrives
  std::function<void()> on_idle = {};                       ///< called after each second without output, while it runs
  bool outside = false;   ///< runs on this machine, also if the host is an image or a machine record
  bool own_unit = false;  ///< runs in a unit of its own under a service of p2pd: it must not end with p2pd

  std::string text() const;                                     ///< argv as a person would type it
  std::map<std::string, std::string> full_environment() const;  ///< environment that it runs with
};

/// Exit status of a command (128 + signal if killed) and its output, at most kOutputLimit bytes each;
/// if more came, a last line gives the number of dropped bytes.
struct CommandResult {
  static constexpr std::size_t kOutputLimit = 16U << 20;
  int status = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

/// Runs commands; tests replace it to simulate another machine.
class CommandRunner {
 public:
  virtual ~CommandRunner() = default;
  /// Runs a command. Any exit status is a result; an Error means that it was not run, timed out or was interrupted.
  virtual Result<CommandResult> run(const Command& command) = 0;
  /// Descriptor that is readable once commands and other long operations must end; -1 for never.
  virtual int stop_fd() const = 0;
};

/// Makes SIGINT and SIGTERM readable in place of ending this process. Returns the descriptor, for ProcessRunner.
int stop_signals();

/// Runs commands as processes, inside `root` (chroot) when that is not "/" and they are not Command::outside.
///
/// At the deadline the process group gets SIGTERM, then SIGKILL; no wait is unbounded. A command has ended when
/// its own process has: the rest of its group is killed.
class ProcessRunner : public CommandRunner {
 public:
  /// `stop_fd` becomes readable: kills the running command and returns ErrorCode::interrupted; -1 for never.
  explicit ProcessRunner(std::string root = "/", int stop_fd = -1) : root_(std::move(root)), stop_fd_(stop_fd) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return stop_fd_; }

 private:
  std::string root_;
  int stop_fd_;
};

/// Returns an Error unless the status is 0; it carries argv, status and the end of the output.
Result<void> require_success(const Command& command, const CommandResult& result);

}  // namespace p2pd
