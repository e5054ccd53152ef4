// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-event.h>

#include <functional>

#include "protocol/request.hpp"

namespace p2pd {

/// Connection to the worker: one line of JSON over its socket, one line back. systemd starts the worker on demand.
class WorkerLink {
 public:
  using Answered = std::function<void(const Answer&)>;

  explicit WorkerLink(sd_event* event) : event_(event) {}
  /// `answered` is called once, from the event loop, with the worker's answer, its error, or the reason for no answer.
  void ask(const Request& request, Answered answered);
  bool idle() const { return calls_ == 0; }

 private:
  struct Call;
  static int ready(sd_event_source*, int fd, std::uint32_t, void* call);
  static int late(sd_event_source*, std::uint64_t, void* call);
  void start(Call* call);
  void finish(Call* call, const Answer& answer);

  sd_event* event_;
  int calls_ = 0;
};

}  // namespace p2pd
