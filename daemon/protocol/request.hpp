// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// Request to the worker: a method of org.p2pd1.Manager, on the bus and on the worker's socket.
struct Request {
  enum class Kind { apply, pause, resume, retry, cancel, revert };
  Kind kind = Kind::apply;
  std::string plan = {};  ///< for apply; empty: the configured plan
  bool reboot = true;     ///< for apply: false leaves restarts to the operator
};
std::string_view to_string(Request::Kind kind);

/// Method of org.p2pd1.Manager for a kind of request.
constexpr const char* bus_method(Request::Kind kind) {
  constexpr const char* kMethods[] = {"Apply", "Pause", "Resume", "Retry", "Cancel", "Revert"};
  return kMethods[static_cast<std::size_t>(kind)];
}
/// Kind of that name of a method; nothing if there is none.
std::optional<Request::Kind> request_kind(std::string_view method);
/// Action of polkit that allows a request.
const char* polkit_action(const Request& request);

/// ErrorCode::invalid if `plan` is neither empty nor the name of a plan; a path is none.
Result<void> require_plan_name(std::string_view plan);

/// Path of the worker's socket.
std::string worker_socket();

}  // namespace p2pd
