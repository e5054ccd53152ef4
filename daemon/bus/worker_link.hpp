// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-event.h>

#include <functional>

#include "bus/requests.hpp"

namespace p2pd {

/// Requests to the worker, each on a connection of its own to its socket. systemd starts the worker on demand.
class WorkerLink {
 public:
  using Answered = std::function<void(const Answer&)>;

  explicit WorkerLink(sd_event* event) : event_(event) {}
  /// `answered` is called once, from the event loop, with the worker's answer, its error, or the reason for no answer.
  void ask(const Request& request, Answered answered);
  bool idle() const { return calls_ == 0; }

 private:
  struct Call;
  static int replied(sd_bus_message* reply, void* call, sd_bus_error*);
  static int late(sd_event_source*, std::uint64_t, void* call);
  Result<void> send(Call& call);

  sd_event* event_;
  int calls_ = 0;
};

}  // namespace p2pd
