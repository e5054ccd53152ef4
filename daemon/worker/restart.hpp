// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "bus/logind.hpp"
#include "engine/seams.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Restarts this machine in good manners: everybody who is logged in, the console and the message of the day are told
/// why, and how to stop it, a while before. Where the plan leaves restarts to somebody else, that somebody is told by
/// /run/reboot-required, as Debian's packages do it.
class Restart : public Rebooter {
 public:
  Restart(Mailbox& mailbox, std::chrono::seconds delay) : mailbox_(mailbox), delay_(delay) {}

  /// Returns once the machine goes down, which ends p2pd, or somebody called it off. What somebody else has scheduled is never
  /// replaced: the restart is left to it.
  Result<Outcome> reboot(RebootPolicy policy, std::string_view reason, bool rolling_back) override;
  std::string in_the_way() override;

  /// Cancels the restart that this or an earlier start scheduled, and removes its announcements; a run that still needs it
  /// schedules it again. A schedule of somebody else stays.
  void cancel_announced_reboot();

 private:
  Result<Outcome> wait(std::string_view text);
  Result<void> cancel_ours();

  Mailbox& mailbox_;
  Logind logind_;
  std::chrono::seconds delay_;
};

}  // namespace p2pd
