// SPDX-License-Identifier: MIT
#include "protocol/request.hpp"

#include "base/directories.hpp"
#include "base/parameters.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kKinds[] = {"apply", "pause", "resume", "retry", "cancel", "revert"};

}  // namespace

std::string_view to_string(Request::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::optional<Request::Kind> request_kind(std::string_view method) {
  for (std::size_t number = 0; number < std::size(kKinds); ++number)
    if (const auto kind = static_cast<Request::Kind>(number); method == bus_method(kind)) return kind;
  return std::nullopt;
}

const char* polkit_action(const Request& request) {
  switch (request.kind) {
    case Request::Kind::pause: return "org.p2pd1.apply";
    case Request::Kind::cancel:
    case Request::Kind::revert: return "org.p2pd1.revert";
    default: return request.reboot ? "org.p2pd1.reboot" : "org.p2pd1.apply";
  }
}

Result<void> require_plan_name(std::string_view plan) {
  if (plan.empty() || is_name(plan)) return {};
  return fail(ErrorCode::invalid, "the name of a plan has a-z, 0-9 and -, at most 64 characters",
              "its file is in /etc/p2pd/plans");
}

std::string worker_socket() { return runtime_directory() + "/walk.sock"; }

}  // namespace p2pd
