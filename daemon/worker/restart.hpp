// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "bus/logind.hpp"
#include "engine/seams.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Restarts this machine with an announcement: logged-in users, the console and the message of the day get the reason
/// and the way to stop it in advance. If the plan leaves restarts to the operator, /run/reboot-required announces the
/// need, as Debian's packages do it.
class Restart : public Rebooter {
 public:
  Restart(Mailbox& mailbox, std::chrono::seconds delay) : mailbox_(mailbox), delay_(delay) {}

  /// Returns once the machine shuts down, which ends p2pd, or the restart is cancelled. Never replaces a schedule of
  /// another program: the restart is left to it.
  Result<Outcome> reboot(RebootPolicy policy, std::string_view reason, bool rolling_back) override;
  std::string in_the_way() override;

  /// Cancels the restart that this or an earlier start scheduled, and removes its announcements. A run that still needs
  /// it schedules it again. A schedule of another program stays.
  void cancel_announced_reboot();

 private:
  Result<Outcome> wait(std::string_view text);
  Result<void> cancel_ours();

  Mailbox& mailbox_;
  Logind logind_;
  std::chrono::seconds delay_;
};

}  // namespace p2pd
