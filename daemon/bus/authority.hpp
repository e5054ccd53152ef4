// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include <functional>
#include <map>
#include <string>

#include "bus/sd_bus.hpp"

namespace p2pd {

/// Authorizes changes: root may make them, other users if polkit allows the action. If polkit is not on the bus, only
/// root may.
///
/// Works with polkit 0.105: the subject is the caller's bus name, and nothing is cached here.
/// Reference: org.freedesktop.PolicyKit1.Authority, CheckAuthorization.
class Authority {
 public:
  /// Calls `allowed` once the sender of `call` may do `action`; otherwise answers the call with an error. Allows a
  /// person the time to type a password, without blocking other callers. Drops a caller that leaves. Returns the return
  /// value of a method handler.
  int authorize(sd_bus_message* call, const char* action, std::function<void(const MessageRef&)> allowed);
  bool idle() const { return pending_ == 0; }

 private:
  struct Question;
  static int answered(sd_bus_message* reply, void* question, sd_bus_error*);
  static int left(sd_bus_track*, void* question);

  std::map<uid_t, int> pending_of_;  ///< questions that polkit has not answered, by user, for all callers of that user
  int pending_ = 0;
};

}  // namespace p2pd
