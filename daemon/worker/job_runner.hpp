// SPDX-License-Identifier: MIT
#pragma once

#include "base/command.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Runs commands as processes of the worker, and those that must not end with it in p2pd-job.service: no stop, crash or
/// upgrade of p2pd tears dpkg.
///
/// Such a command writes to files, not to pipes, which would break with their reader. It gets no SIGTERM: who stops the
/// unit, or the machine, waits for its end, up to half an hour.
class JobRunner : public CommandRunner {
 public:
  /// `on_line` hears the output of those that nobody else listens to. `systemd`: it runs here.
  JobRunner(const Mailbox& mailbox, bool systemd, std::function<void(std::string_view)> on_line)
      : mailbox_(mailbox), inner_("/", mailbox.halt_fd()), systemd_(systemd), on_line_(std::move(on_line)) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return inner_.stop_fd(); }

  /// Returns once the job that an earlier start left running has ended: nothing is looked at, or changed, before.
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
