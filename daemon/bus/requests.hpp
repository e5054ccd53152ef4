// SPDX-License-Identifier: MIT
// The methods of org.p2pd1.Manager that ask for something: on the system bus, and peer to peer on the worker's socket.
#pragma once

#include <systemd/sd-bus.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "bus/sd_bus.hpp"
#include "engine/transitions.hpp"

namespace p2pd {

namespace bus_names {
inline constexpr const char* kService = "org.p2pd1";
inline constexpr const char* kPath = "/org/p2pd1";
inline constexpr const char* kManager = "org.p2pd1.Manager";
}  // namespace bus_names

/// Path of the worker's socket.
std::string worker_socket();

/// Methods of org.p2pd1.Manager that ask for an event.
using RequestMethod = std::pair<Event, const char*>;
inline constexpr RequestMethod kRequestMethods[] = {{Event::apply, "Apply"},   {Event::pause, "Pause"},
                                                    {Event::resume, "Resume"}, {Event::retry, "Retry"},
                                                    {Event::cancel, "Cancel"}, {Event::revert, "Revert"}};
constexpr const char* method_of(Event event) {
  return std::ranges::find(kRequestMethods, event, &RequestMethod::first)->second;
}

/// Answer to a request: the id of the run.
using Answer = Result<std::uint64_t>;

/// Reads the request that `call` makes. Refuses arguments that are none of the method, and a plan that is no name, such
/// as a path: returns what the handler of the call then returns.
std::optional<int> read_request(sd_bus_message* call, Request& request, sd_bus_error* error);
/// Unsent call that makes `request`; `service`: a name on the bus, null for a peer.
Result<MessageRef> call_of(sd_bus* bus, const char* service, const Request& request);

/// Sends the reply: the run, or an error with message and next step as arguments. A client that has left is no error.
int send_answer(sd_bus_message* call, const Answer& answer);
/// Answer in a reply that is no error.
Answer answer_in(sd_bus_message* reply);
/// Error of p2pd in a reply; nothing if it is no error, or another one's.
std::optional<Error> error_in(sd_bus_message* reply);

/// Makes a request to the worker, on a connection of its own to its socket; systemd starts the worker on demand.
/// `answered` is called once, from the event loop or at once, with the worker's answer, its error, or the reason for no
/// answer.
void ask_worker(sd_event* event, const Request& request, std::function<void(const Answer&)> answered);

// Rows of a vtable with these methods; `handler` reads them all. NOLINTBEGIN: libsystemd's macros
#define P2PD_REQUEST_METHOD(event, handler)                                                            \
  SD_BUS_METHOD_WITH_ARGS(method_of(event), SD_BUS_NO_ARGS, SD_BUS_RESULT("t", run), guarded<handler>, \
                          SD_BUS_VTABLE_UNPRIVILEGED)
#define P2PD_REQUEST_METHODS(handler)                                                                                 \
  SD_BUS_METHOD_WITH_ARGS(method_of(Event::apply), SD_BUS_ARGS("s", plan, "a{sv}", options), SD_BUS_RESULT("t", run), \
                          guarded<handler>, SD_BUS_VTABLE_UNPRIVILEGED),                                              \
      P2PD_REQUEST_METHOD(Event::pause, handler), P2PD_REQUEST_METHOD(Event::resume, handler),                        \
      P2PD_REQUEST_METHOD(Event::retry, handler), P2PD_REQUEST_METHOD(Event::cancel, handler),                        \
      P2PD_REQUEST_METHOD(Event::revert, handler)
// NOLINTEND

}  // namespace p2pd
