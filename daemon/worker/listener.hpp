// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-event.h>

#include <functional>
#include <list>
#include <map>
#include <memory>

#include "base/descriptor.hpp"
#include "bus/requests.hpp"

namespace p2pd {

/// Socket of the worker: its clients speak D-Bus, without a bus between. Permitted are root, and the user that p2pd
/// runs as; at most kConnections at once.
class Listener {
 public:
  static constexpr std::size_t kConnections = 32;
  using Asked = std::function<void(std::uint64_t call, const Request& request)>;

  /// Takes the socket that systemd passed, else makes RUNTIME/walk.sock. Calls `asked` from `loop`, for each request.
  static Result<std::unique_ptr<Listener>> open(sd_event* loop, Asked asked);
  ~Listener();

  /// Answers a call. A client that has left is none.
  void answer(std::uint64_t call, const Answer& answer);

 private:
  Listener(sd_event* loop, Asked asked, Descriptor socket, bool own);
  static int connected(sd_event_source*, int fd, std::uint32_t, void* listener);
  static int called(sd_bus_message* call, void* listener, sd_bus_error* error);
  static int left(sd_bus_message* message, void* listener, sd_bus_error*);
  int serve(Descriptor client);
  void drop(sd_bus* connection);
  static const sd_bus_vtable kVtable[];

  sd_event* loop_;
  Asked asked_;
  Descriptor socket_;
  bool own_;  ///< the socket was made here, and is removed with the listener
  sd_event_source* source_ = nullptr;
  std::list<sd_bus*> connections_;
  std::map<std::uint64_t, MessageRef> calls_;  ///< not answered yet
  std::uint64_t last_ = 0;
};

}  // namespace p2pd
