// SPDX-License-Identifier: MIT
#include "bus/worker_link.hpp"

#include <fmt/format.h>

#include <memory>

namespace p2pd {
namespace {

// Microseconds. The worker may start, and wait for its lock; before an undo it checks the package backup, with apt.
constexpr std::uint64_t kWorkerPatience = 60'000'000, kUndoPatience = 600'000'000;
constexpr int kTries = 3;  // a worker that is just ending accepts no request: the next start does

Failure unreachable(int code) {
  return fail(code == -EAGAIN ? ErrorCode::busy : ErrorCode::io,
              fmt::format("the worker cannot be reached at {}: {}", worker_socket(), error_text(code)),
              "\"systemctl status p2pd-worker.socket p2pd-worker.service\" shows why");
}

}  // namespace

struct WorkerLink::Call {
  WorkerLink* link;
  Request request;
  Answered answered;
  int tries = 0;
  sd_bus* bus = nullptr;
  sd_event_source* timer = nullptr;

  void close() { bus = sd_bus_close_unref(bus); }
  ~Call() {
    close();
    sd_event_source_disable_unref(timer);
  }
};

void WorkerLink::ask(const Request& request, Answered answered) {
  auto call = std::make_unique<Call>(Call{this, request, std::move(answered)});
  const bool undoes = request.kind == Request::Kind::cancel || request.kind == Request::Kind::revert;
  const std::uint64_t patience = undoes ? kUndoPatience : kWorkerPatience;
  if (sd_event_add_time_relative(event_, &call->timer, CLOCK_MONOTONIC, patience, 0, guarded<late>, call.get()) < 0)
    return call->answered(fail(ErrorCode::io, "no timer for a request"));
  if (const Result<void> sent = send(*call); !sent) return call->answered(Failure(sent.error()));
  ++calls_;
  (void)call.release();  // until replied()
}

Result<void> WorkerLink::send(Call& call) {
  ++call.tries;
  call.close();
  int code = sd_bus_new(&call.bus);
  if (code >= 0) code = sd_bus_set_address(call.bus, ("unix:path=" + worker_socket()).c_str());
  if (code >= 0) code = sd_bus_set_close_on_exit(call.bus, 0);  // it would wait for the worker
  if (code >= 0) code = sd_bus_start(call.bus);
  if (code >= 0) code = sd_bus_attach_event(call.bus, event_, SD_EVENT_PRIORITY_NORMAL);
  if (code < 0) return unreachable(code);
  const MessageRef message = TRY(call_of(call.bus, nullptr, call.request));
  code = sd_bus_call_async(call.bus, nullptr, message, guarded<replied>, &call, UINT64_MAX);
  if (code < 0) return unreachable(code);
  return {};
}

int WorkerLink::replied(sd_bus_message* reply, void* data, sd_bus_error*) {
  std::unique_ptr<Call> call(static_cast<Call*>(data));
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
    const Result<void> again = call->link->send(*call);
    if (again) return (void)call.release(), 1;
    answer = Failure(again.error());
  }
  --call->link->calls_;
  call->answered(answer);
  return 1;
}

int WorkerLink::late(sd_event_source*, std::uint64_t, void* data) {
  const std::unique_ptr<Call> call(static_cast<Call*>(data));
  --call->link->calls_;
  call->answered(fail(ErrorCode::timeout, "the worker did not answer in time",
                      "\"systemctl status p2pd-worker.service\" shows why"));
  return 0;
}

}  // namespace p2pd
