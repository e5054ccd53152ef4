// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "engine/seams.hpp"
#include "bus/logind.hpp"
#include "walk/mailbox.hpp"

namespace p2pd {

/// Restarts this machine in good manners: everybody who is logged in, the console and the message of the day are told
/// why, and how to stop it, a while before. Where the plan leaves restarts to somebody else, that somebody is told by
/// /run/reboot-required, as Debian's packages do it.
class Restart : public Rebooter {
 public:
  Restart(Mailbox& mailbox, std::chrono::seconds delay) : mailbox_(mailbox), delay_(delay) {}

  /// Returns once the machine goes down, which ends p2pd, or somebody called it off.
  Result<Outcome> reboot(RebootPolicy policy, std::string_view reason, bool way_back) override;

  /// Takes back what an earlier start, or this one, announced: it is announced anew where it is still to come.
  void take_back();

 private:
  Result<Outcome> wait(std::string_view text);

  Mailbox& mailbox_;
  Logind logind_;
  std::chrono::seconds delay_;
};

}  // namespace p2pd
