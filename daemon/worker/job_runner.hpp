// SPDX-License-Identifier: MIT
#pragma once

#include "base/command.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Runs commands as processes of the worker. Commands that must not end with it run in p2pd-job.service: no stop, crash
/// or upgrade of p2pd interrupts dpkg.
///
/// Such a command writes to files: a pipe would break with its reader. It gets no SIGTERM: a stop of the unit or a
/// shutdown waits for its end, up to half an hour.
class JobRunner : public CommandRunner {
 public:
  /// `on_line` receives the output of commands without a listener of their own. `systemd`: systemd runs on this
  /// machine.
  JobRunner(const Mailbox& mailbox, bool systemd, std::function<void(std::string_view)> on_line)
      : mailbox_(mailbox), inner_("/", mailbox.halt_fd()), systemd_(systemd), on_line_(std::move(on_line)) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return inner_.stop_fd(); }

  /// Returns once a job of an earlier start has ended: no check or change may come before.
  Result<void> wait_for_last();
  /// Error(busy) while that job runs.
  Result<void> refuse_while_last_runs();

 private:
  Result<CommandResult> follow(const Command& command);

  const Mailbox& mailbox_;
  ProcessRunner inner_;
  bool systemd_;
  std::function<void(std::string_view)> on_line_;
};

}  // namespace p2pd
