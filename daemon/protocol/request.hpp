// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Request to the worker: a method of the bus, and a line of JSON on the worker's socket.
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
/// Action of polkit that allows a request.
const char* polkit_action(const Request& request);

/// ErrorCode::invalid if `plan` is neither empty nor the name of a plan; a path is none.
Result<void> require_plan_name(std::string_view plan);

/// {"do": "apply", "plan": "NAME", "reboot": true}
nlohmann::json to_json(const Request& request);
/// Request from such an object, which comes from outside; ErrorCode::invalid if it is none.
Result<Request> request_from_json(const nlohmann::json& request);

/// Answer of the worker: the id of the run, {"run": 7}, or {"error": {...}}.
using Answer = Result<std::uint64_t>;
nlohmann::json to_json(const Answer& answer);
Answer answer_from_json(const nlohmann::json& answer);

/// Path of the worker's socket.
std::string worker_socket();

}  // namespace p2pd
