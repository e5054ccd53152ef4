// SPDX-License-Identifier: MIT
#include "bus/worker_link.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <memory>

#include "base/descriptor.hpp"
#include "bus/sd_bus.hpp"

namespace p2pd {
namespace {

// Microseconds. The worker may start, and wait for its lock; before an undo it checks the package backup, with apt.
constexpr std::uint64_t kWorkerPatience = 60'000'000, kUndoPatience = 600'000'000;
constexpr std::size_t kAnswer = 64U << 10;
constexpr int kTries = 3;  // a worker that is just ending accepts no request: the next start does

Result<Descriptor> connect_worker() {
  const std::string path = worker_socket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(ErrorCode::invalid, path + ": too long for a socket");
  path.copy(address.sun_path, path.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  const int error = errno;
  return fail(error == EAGAIN ? ErrorCode::busy : ErrorCode::io,
              fmt::format("the worker cannot be reached at {}: {}", path, std::generic_category().message(error)),
              "\"systemctl status p2pd-worker.socket p2pd-worker.service\" shows why");
}

}  // namespace

struct WorkerLink::Call {
  WorkerLink* link;
  std::string line;
  Answered answered;
  int tries = 0;
  Descriptor socket;
  std::string received;
  sd_event_source* io = nullptr;
  sd_event_source* timer = nullptr;

  ~Call() {
    sd_event_source_disable_unref(io);
    sd_event_source_disable_unref(timer);
  }
};

void WorkerLink::ask(const Request& request, Answered answered) {
  ++calls_;
  auto* call = new Call{this,   to_json(request).dump() + "\n", std::move(answered), 0, {}, {}, nullptr,
                        nullptr};  // deleted by finish()
  const bool undoes = request.kind == Request::Kind::cancel || request.kind == Request::Kind::revert;
  const std::uint64_t patience = undoes ? kUndoPatience : kWorkerPatience;
  if (sd_event_add_time_relative(event_, &call->timer, CLOCK_MONOTONIC, patience, 0, guarded<late>, call) < 0)
    return finish(call, fail(ErrorCode::io, "no timer for a request"));
  start(call);
}

void WorkerLink::start(Call* call) {
  call->io = sd_event_source_disable_unref(call->io);
  call->received.clear();
  ++call->tries;
  Result<Descriptor> socket = connect_worker();
  if (!socket) return finish(call, Failure(socket.error()));
  call->socket = *std::move(socket);
  const ssize_t sent = ::send(call->socket.get(), call->line.data(), call->line.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(call->line.size()))
    return finish(call, fail_errno("the worker does not accept a request"));
  if (sd_event_add_io(event_, &call->io, call->socket.get(), EPOLLIN, guarded<ready>, call) < 0)
    finish(call, fail(ErrorCode::io, "cannot wait for the worker"));
}

int WorkerLink::ready(sd_event_source*, int fd, std::uint32_t, void* data) {
  auto* call = static_cast<Call*>(data);
  std::array<char, 4096> buffer;
  const ssize_t count = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (count > 0) call->received.append(buffer.data(), static_cast<std::size_t>(count));
  if (const std::size_t end = call->received.find('\n'); end != std::string::npos) {
    call->link->finish(call, answer_from_json(parse_json(std::string_view(call->received).substr(0, end))));
  } else if (call->received.size() > kAnswer) {
    call->link->finish(call, fail(ErrorCode::invalid, "the worker's answer is too long"));
  } else if (count <= 0) {
    if (call->received.empty() && call->tries < kTries)
      call->link->start(call);
    else
      call->link->finish(call, fail(ErrorCode::io, "the worker ended before it answered",
                                    "\"p2pctl status\" shows the state; try again"));
  }
  return 0;
}

int WorkerLink::late(sd_event_source*, std::uint64_t, void* data) {
  auto* call = static_cast<Call*>(data);
  call->link->finish(call, fail(ErrorCode::timeout, "the worker did not answer in time",
                                "\"systemctl status p2pd-worker.service\" shows why"));
  return 0;
}

void WorkerLink::finish(Call* call, const Answer& answer) {
  const std::unique_ptr<Call> ended(call);
  --calls_;
  ended->answered(answer);
}

}  // namespace p2pd
