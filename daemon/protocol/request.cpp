// SPDX-License-Identifier: MIT
#include "protocol/request.hpp"

#include <fmt/format.h>

#include "base/directories.hpp"
#include "base/enum_names.hpp"
#include "base/json_members.hpp"
#include "base/parameters.hpp"
#include "protocol/bus_names.hpp"
#include "protocol/error.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kKinds[] = {"apply", "pause", "resume", "retry", "cancel", "revert"};

}  // namespace

std::string_view to_string(Request::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

const char* polkit_action(const Request& request) {
  switch (request.kind) {
    case Request::Kind::pause: return bus_names::kApply;
    case Request::Kind::cancel:
    case Request::Kind::revert: return bus_names::kRevert;
    default: return request.reboot ? bus_names::kReboot : bus_names::kApply;
  }
}

Result<void> require_plan_name(std::string_view plan) {
  if (plan.empty() || is_name(plan)) return {};
  return fail(ErrorCode::invalid, "the name of a plan has a-z, 0-9 and -, at most 64 characters",
              "its file is in /etc/p2pd/plans");
}

nlohmann::json to_json(const Request& request) {
  nlohmann::json words = {{"do", to_string(request.kind)}};
  if (request.kind == Request::Kind::apply) words.update({{"plan", request.plan}, {"reboot", request.reboot}});
  return words;
}

Result<Request> request_from_json(const nlohmann::json& words) {
  if (!words.is_object() || !words.contains("do") || !words["do"].is_string())
    return fail(ErrorCode::invalid, "expected a line of JSON like {\"do\": \"apply\", \"plan\": \"NAME\"}");
  const auto kind = value_called<Request::Kind>(kKinds, words["do"].get<std::string>());
  if (!kind) return fail(ErrorCode::invalid, fmt::format("unknown request {}", words["do"].dump()));
  Request request{.kind = *kind};
  for (const auto& [key, value] : words.items()) {
    if (key == "do") continue;
    if (request.kind != Request::Kind::apply)
      return fail(ErrorCode::invalid, fmt::format("\"{}\" is for apply only", key));
    if (key == "plan" && value.is_string())
      request.plan = value;
    else if (key == "reboot" && value.is_boolean())
      request.reboot = value;
    else
      return fail(ErrorCode::invalid, fmt::format("\"{}\": not a value that it can have", key));
  }
  TRY(require_plan_name(request.plan));
  return request;
}

nlohmann::json to_json(const Answer& answer) {
  if (!answer) return {{"error", to_json(answer.error())}};
  return {{"run", *answer}};
}

Answer answer_from_json(const nlohmann::json& answer) {
  if (!answer.is_object()) return fail(ErrorCode::invalid, "the worker's answer is not JSON");
  if (const auto run = json_number<std::uint64_t>(answer.value("run", nlohmann::json()))) return *run;
  Error error = error_from_json(answer.value("error", nlohmann::json()));
  if (error.message.empty()) error.message = "the worker refused without a reason";
  return Failure(std::move(error));
}

std::string worker_socket() { return runtime_directory() + "/walk.sock"; }

}  // namespace p2pd
