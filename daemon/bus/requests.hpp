// SPDX-License-Identifier: MIT
// The methods of org.p2pd1.Manager that ask for something: on the system bus, and peer to peer on the worker's socket.
#pragma once

#include <systemd/sd-bus.h>

#include <cstdint>
#include <optional>

#include "base/result.hpp"
#include "bus/sd_bus.hpp"
#include "protocol/request.hpp"

namespace p2pd {

namespace bus_names {
inline constexpr const char* kService = "org.p2pd1";
inline constexpr const char* kPath = "/org/p2pd1";
inline constexpr const char* kManager = "org.p2pd1.Manager";
}  // namespace bus_names

/// Answer to a request: the id of the run.
using Answer = Result<std::uint64_t>;

/// Reads the request that `call` makes. If its arguments are none of the method: a negative code, with `error` set.
int read_request(sd_bus_message* call, Request& request, sd_bus_error* error);
/// Unsent call that makes `request`; `service`: a name on the bus, null for a peer.
Result<MessageRef> call_of(sd_bus* bus, const char* service, const Request& request);

/// Sends the reply: the run, or an error with message and next step as arguments. A client that has left is no error.
int send_answer(sd_bus_message* call, const Answer& answer);
/// Answer in a reply that is no error.
Answer answer_in(sd_bus_message* reply);
/// Error of p2pd in a reply; nothing if it is no error, or another one's.
std::optional<Error> error_in(sd_bus_message* reply);

// Rows of a vtable with these methods; `handler` reads them all. NOLINTBEGIN: libsystemd's macros
#define P2PD_REQUEST_METHOD(kind, handler)                                                             \
  SD_BUS_METHOD_WITH_ARGS(bus_method(kind), SD_BUS_NO_ARGS, SD_BUS_RESULT("t", run), guarded<handler>, \
                          SD_BUS_VTABLE_UNPRIVILEGED)
#define P2PD_REQUEST_METHODS(handler)                                                                          \
  SD_BUS_METHOD_WITH_ARGS(bus_method(Request::Kind::apply), SD_BUS_ARGS("s", plan, "a{sv}", options),          \
                          SD_BUS_RESULT("t", run), guarded<handler>, SD_BUS_VTABLE_UNPRIVILEGED),              \
      P2PD_REQUEST_METHOD(Request::Kind::pause, handler), P2PD_REQUEST_METHOD(Request::Kind::resume, handler), \
      P2PD_REQUEST_METHOD(Request::Kind::retry, handler), P2PD_REQUEST_METHOD(Request::Kind::cancel, handler), \
      P2PD_REQUEST_METHOD(Request::Kind::revert, handler)
// NOLINTEND

}  // namespace p2pd
