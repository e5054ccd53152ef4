// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include <functional>
#include <map>
#include <string>

#include "bus/sd_bus.hpp"

namespace p2pd {

/// Says who may change something: root may, others where polkit allows them the action. Where polkit is not on the bus,
/// only root may.
///
/// Works with polkit 0.105: the subject is the caller's bus name, nothing is cached here.
/// Reference: org.freedesktop.PolicyKit1.Authority, CheckAuthorization.
class Authority {
 public:
  /// Calls `allowed` once the sender of `call` may do `action`; else answers the call with an error. The caller waits as
  /// long as a person takes to type a password, and nobody else does; who leaves is forgotten. Returns what a method handler returns.
  int authorize(sd_bus_message* call, const char* action, std::function<void(const MessageRef&)> allowed);
  bool idle() const { return pending_ == 0; }

 private:
  struct Question;
  static int answered(sd_bus_message* reply, void* question, sd_bus_error*);
  static int left(sd_bus_track*, void* question);

  std::map<uid_t, int> pending_of_;  ///< user to the questions of all its callers that polkit has not answered
  int pending_ = 0;
};

}  // namespace p2pd
