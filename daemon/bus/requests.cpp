// SPDX-License-Identifier: MIT
#include "bus/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/directories.hpp"
#include "base/parameters.hpp"
#include "base/utf8.hpp"

namespace p2pd {
namespace {

using ErrorName = std::pair<ErrorCode, const char*>;
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

std::string worker_socket() { return runtime_directory() + "/walk.sock"; }

std::optional<int> read_request(sd_bus_message* call, Request& request, sd_bus_error* error) {
  const std::string_view method = sd_bus_message_get_member(call);
  const auto* asked = std::ranges::find(kRequestMethods, method, &RequestMethod::second);
  if (asked == std::end(kRequestMethods))
    return sd_bus_error_set(error, SD_BUS_ERROR_UNKNOWN_METHOD, "no such request");
  request = {.event = asked->first};
  if (request.event != Event::apply) return std::nullopt;
  const char* plan = nullptr;
  int code = sd_bus_message_read(call, "s", &plan);
  if (code >= 0) code = read_options(call, request, error);
  if (code < 0) return code;
  request.plan = plan;
  if (request.plan.empty() || is_name(plan)) return std::nullopt;
  return send_answer(call, fail(ErrorCode::invalid, "the name of a plan has a-z, 0-9 and -, at most 64 characters",
                                "its file is in /etc/p2pd/plans"));
}

Result<MessageRef> call_of(sd_bus* bus, const char* service, const Request& request) {
  MessageRef call;
  int code = sd_bus_message_new_method_call(bus, call.out(), service, bus_names::kPath, bus_names::kManager,
                                            method_of(request.event));
  if (code >= 0 && request.event == Event::apply)
    code = sd_bus_message_append(call, "sa{sv}", request.plan.c_str(), 1, "reboot", "b", request.reboot ? 1 : 0);
  if (code < 0) return fail(ErrorCode::io, "cannot make a request: " + error_text(code));
  return call;
}

int send_answer(sd_bus_message* call, const Answer& answer) {
  if (answer) return sd_bus_reply_method_return(call, "t", *answer);
  const std::string message = as_utf8(answer.error().message), next = as_utf8(answer.error().next);
  const auto* name = std::ranges::find(kErrors, answer.error().code, &ErrorName::first);
  const sd_bus_error error = {name->second, message.c_str(), 0};
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
  const auto* name = std::ranges::find(kErrors, std::string_view(error->name), &ErrorName::second);
  if (name == std::end(kErrors)) return std::nullopt;
  const char *message = nullptr, *next = nullptr;
  sd_bus_message_rewind(reply, 1);
  const bool whole = sd_bus_message_read(reply, "ss", &message, &next) >= 0;
  return Error{name->first, error->message == nullptr ? error->name : error->message, whole ? next : ""};
}

namespace {

// Microseconds. The worker may start, and wait for its lock; before an undo it checks the package backup, with apt.
constexpr std::uint64_t kWorkerPatience = 60'000'000, kUndoPatience = 600'000'000;
constexpr int kTries = 3;  // a worker that is just ending accepts no request: the next start does

Failure unreachable(int code) {
  return fail(code == -EAGAIN ? ErrorCode::busy : ErrorCode::io,
              fmt::format("the worker cannot be reached at {}: {}", worker_socket(), error_text(code)),
              "\"systemctl status p2pd-worker.socket p2pd-worker.service\" shows why");
}

/// Call to the worker, which exists until it is answered.
struct WorkerCall {
  sd_event* event;
  Request request;
  std::function<void(const Answer&)> answered;
  int tries = 0;
  sd_bus* bus = nullptr;
  sd_event_source* timer = nullptr;

  void close() { bus = sd_bus_close_unref(bus); }
  ~WorkerCall() {
    close();
    sd_event_source_disable_unref(timer);
  }
  Result<void> send();
};

int replied(sd_bus_message* reply, void* data, sd_bus_error*) {
  std::unique_ptr<WorkerCall> call(static_cast<WorkerCall*>(data));
  const sd_bus_error* error = sd_bus_message_get_error(reply);
  Answer answer = error == nullptr ? answer_in(reply)
                                   : fail(ErrorCode::io, "the worker ended before it answered",
                                          "\"p2pctl status\" shows the state; try again");
  if (const std::optional<Error> refused = error_in(reply)) {
    answer = Failure(*refused);
  } else if (error != nullptr && sd_bus_error_has_name(error, SD_BUS_ERROR_NO_REPLY) == 0) {
    answer =
        fail(ErrorCode::io, fmt::format("the worker: {}", error->message == nullptr ? error->name : error->message));
  } else if (error != nullptr && call->tries < kTries) {
    const Result<void> again = call->send();
    if (again) return (void)call.release(), 1;
    answer = Failure(again.error());
  }
  call->answered(answer);
  return 1;
}

int late(sd_event_source*, std::uint64_t, void* data) {
  const std::unique_ptr<WorkerCall> call(static_cast<WorkerCall*>(data));
  call->answered(fail(ErrorCode::timeout, "the worker did not answer in time",
                      "\"systemctl status p2pd-worker.service\" shows why"));
  return 0;
}

Result<void> WorkerCall::send() {
  ++tries;
  close();
  int code = sd_bus_new(&bus);
  if (code >= 0) code = sd_bus_set_address(bus, ("unix:path=" + worker_socket()).c_str());
  if (code >= 0) code = sd_bus_set_close_on_exit(bus, 0);  // it would wait for the worker
  if (code >= 0) code = sd_bus_start(bus);
  if (code >= 0) code = sd_bus_attach_event(bus, event, SD_EVENT_PRIORITY_NORMAL);
  if (code < 0) return unreachable(code);
  const MessageRef message = TRY(call_of(bus, nullptr, request));
  code = sd_bus_call_async(bus, nullptr, message, guarded<replied>, this, UINT64_MAX);
  if (code < 0) return unreachable(code);
  return {};
}

}  // namespace

void ask_worker(sd_event* event, const Request& request, std::function<void(const Answer&)> answered) {
  std::unique_ptr<WorkerCall> call(new WorkerCall{event, request, std::move(answered)});
  const bool undoes = request.event == Event::cancel || request.event == Event::revert;
  const std::uint64_t patience = undoes ? kUndoPatience : kWorkerPatience;
  if (sd_event_add_time_relative(event, &call->timer, CLOCK_MONOTONIC, patience, 0, guarded<late>, call.get()) < 0)
    return call->answered(fail(ErrorCode::io, "no timer for a request"));
  if (const Result<void> sent = call->send(); !sent) return call->answered(Failure(sent.error()));
  (void)call.release();  // until replied()
}

}  // namespace p2pd
