// SPDX-License-Identifier: MIT
#include "bus/requests.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace p2pd {
namespace {

struct ErrorName {
  ErrorCode code;
  const char* name;
};
constexpr ErrorName kErrors[] = {
    {ErrorCode::io, "org.p2pd1.Error.Io"},
    {ErrorCode::not_found, "org.p2pd1.Error.NotFound"},
    {ErrorCode::invalid, "org.p2pd1.Error.Invalid"},
    {ErrorCode::denied, "org.p2pd1.Error.Denied"},
    {ErrorCode::timeout, "org.p2pd1.Error.Timeout"},
    {ErrorCode::command, "org.p2pd1.Error.Command"},
    {ErrorCode::interrupted, "org.p2pd1.Error.Interrupted"},
    {ErrorCode::busy, "org.p2pd1.Error.Busy"},
    {ErrorCode::state, "org.p2pd1.Error.State"},
    {ErrorCode::database_quarantined, "org.p2pd1.Error.Unavailable"},
};

/// Reads {"reboot": true}, the options of an apply.
int read_options(sd_bus_message* call, Request& request, sd_bus_error* error) {
  int code = sd_bus_message_enter_container(call, 'a', "{sv}");
  if (code < 0) return code;
  for (const char* key = nullptr; (code = sd_bus_message_enter_container(call, 'e', "sv")) > 0;
       sd_bus_message_exit_container(call)) {
    int value = 0;
    if (sd_bus_message_read(call, "s", &key) < 0 || std::string_view(key) != "reboot" ||
        sd_bus_message_read(call, "v", "b", &value) < 0)
      return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "options: expected \"reboot\" (b), got \"%s\"",
                               key == nullptr ? "" : key);
    request.reboot = value != 0;
  }
  return code;
}

}  // namespace

int read_request(sd_bus_message* call, Request& request, sd_bus_error* error) {
  const auto kind = request_kind(sd_bus_message_get_member(call));
  if (!kind) return sd_bus_error_set(error, SD_BUS_ERROR_UNKNOWN_METHOD, "no such request");
  request = {.kind = *kind};
  if (*kind != Request::Kind::apply) return 0;
  const char* plan = nullptr;
  const int code = sd_bus_message_read(call, "s", &plan);
  if (code < 0) return code;
  request.plan = plan;
  return read_options(call, request, error);
}

Result<MessageRef> call_of(sd_bus* bus, const char* service, const Request& request) {
  MessageRef call;
  int code = sd_bus_message_new_method_call(bus, call.out(), service, bus_names::kPath, bus_names::kManager,
                                            bus_method(request.kind));
  if (code >= 0 && request.kind == Request::Kind::apply)
    code = sd_bus_message_append(call, "sa{sv}", request.plan.c_str(), 1, "reboot", "b", request.reboot ? 1 : 0);
  if (code < 0) return fail(ErrorCode::io, "cannot make a request: " + error_text(code));
  return call;
}

int send_answer(sd_bus_message* call, const Answer& answer) {
  if (answer) return sd_bus_reply_method_return(call, "t", *answer);
  const std::string message = as_utf8(answer.error().message), next = as_utf8(answer.error().next);
  const auto* name = std::ranges::find(kErrors, answer.error().code, &ErrorName::code);
  const sd_bus_error error = {name->name, message.c_str(), 0};
  MessageRef reply;
  int code = sd_bus_message_new_method_error(call, reply.out(), &error);  // appends the message
  if (code >= 0) code = sd_bus_message_append(reply, "s", next.c_str());
  return code < 0 ? code : sd_bus_send(nullptr, reply, nullptr);
}

Answer answer_in(sd_bus_message* reply) {
  std::uint64_t run = 0;
  const int code = sd_bus_message_read(reply, "t", &run);
  if (code < 0) return fail(ErrorCode::io, "the answer to a request cannot be read: " + error_text(code));
  return run;
}

std::optional<Error> error_in(sd_bus_message* reply) {
  const sd_bus_error* error = sd_bus_message_get_error(reply);
  if (error == nullptr) return std::nullopt;
  const auto* name = std::ranges::find(kErrors, std::string_view(error->name), &ErrorName::name);
  if (name == std::end(kErrors)) return std::nullopt;
  const char *message = nullptr, *next = nullptr;
  sd_bus_message_rewind(reply, 1);
  const bool whole = sd_bus_message_read(reply, "ss", &message, &next) >= 0;
  return Error{name->code, error->message == nullptr ? error->name : error->message, whole ? next : ""};
}

}  // namespace p2pd
