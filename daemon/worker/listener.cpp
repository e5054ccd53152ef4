// SPDX-License-Identifier: MIT
#include "worker/listener.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-id128.h>

#include <algorithm>

#include "base/directories.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr const char* kUser = "p2pd";
constexpr std::uint64_t kUnread = 16;  // answers that a client may leave unread

bool may_ask(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (peer.uid == 0) return true;
  const passwd* user = ::getpwnam(kUser);
  return user != nullptr && user->pw_uid == peer.uid;
}

Result<Descriptor> make_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(ErrorCode::invalid, path + ": too long for a socket");
  std::copy(path.begin(), path.end(), address.sun_path);
  ::mkdir(runtime_directory().c_str(), 0755);
  ::unlink(path.c_str());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t mask = ::umask(0117);
  const bool bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::umask(mask);
  if (!bound || ::listen(socket.get(), 16) != 0) return fail_errno("cannot listen on " + path);
  if (const group* group = ::getgrnam(kUser); group != nullptr) (void)!::chown(path.c_str(), 0, group->gr_gid);
  return socket;
}

}  // namespace

// NOLINTNEXTLINE: libsystemd's macros
const sd_bus_vtable Listener::kVtable[] = {SD_BUS_VTABLE_START(0), P2PD_REQUEST_METHODS(Listener::called),
                                           SD_BUS_VTABLE_END};

Result<std::unique_ptr<Listener>> Listener::open(sd_event* loop, Asked asked) {
  const bool passed = ::sd_listen_fds(1) == 1;
  Descriptor socket = passed ? Descriptor(SD_LISTEN_FDS_START) : TRY(make_socket(worker_socket()));
  if (passed) ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  std::unique_ptr<Listener> listener(new Listener(loop, std::move(asked), std::move(socket), !passed));
  const int code =
      sd_event_add_io(loop, &listener->source_, listener->socket_.get(), EPOLLIN, guarded<connected>, listener.get());
  if (code < 0) return fail(ErrorCode::io, worker_socket() + ": " + error_text(code));
  return listener;
}

Listener::Listener(sd_event* loop, Asked asked, Descriptor socket, bool own)
    : loop_(loop), asked_(std::move(asked)), socket_(std::move(socket)), own_(own) {}

Listener::~Listener() {
  sd_event_source_disable_unref(source_);
  calls_.clear();
  for (sd_bus* connection : connections_) sd_bus_close_unref(connection);  // no flush: a client may never read
  if (own_) ::unlink(worker_socket().c_str());
}

int Listener::connected(sd_event_source*, int fd, std::uint32_t, void* data) {
  auto* listener = static_cast<Listener*>(data);
  Descriptor client(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) return 0;
  if (may_ask(client.get())) return listener->serve(std::move(client));
  log::warning("a process asked that may not: only root, and the service p2pd, may ask the worker");
  return 0;
}

int Listener::serve(Descriptor client) {
  sd_id128_t id;
  sd_bus*& bus = connections_.emplace_back(nullptr);
  int code = sd_id128_randomize(&id);
  if (code >= 0) code = sd_bus_new(&bus);
  if (code >= 0) code = sd_bus_set_fd(bus, client.get(), client.get());
  if (code >= 0) client.release();
  if (code >= 0) code = sd_bus_set_server(bus, 1, id);
  if (code >= 0) code = sd_bus_set_trusted(bus, 1);  // may_ask() has looked
  if (code >= 0) code = sd_bus_negotiate_fds(bus, 0);
  if (code >= 0) code = sd_bus_set_close_on_exit(bus, 0);  // it would wait for the client
  if (code >= 0) code = sd_bus_add_object_vtable(bus, nullptr, bus_names::kPath, bus_names::kManager, kVtable, this);
  if (code >= 0) code = sd_bus_add_filter(bus, nullptr, guarded<left>, this);
  if (code >= 0) code = sd_bus_start(bus);
  if (code >= 0) code = sd_bus_attach_event(bus, loop_, SD_EVENT_PRIORITY_NORMAL);
  if (code < 0) drop(bus);
  if (connections_.size() >= kConnections) sd_event_source_set_enabled(source_, SD_EVENT_OFF);  // others wait
  return code;
}

int Listener::called(sd_bus_message* call, void* data, sd_bus_error* error) {
  Request request;
  if (const std::optional<int> refused = read_request(call, request, error)) return *refused;
  auto* listener = static_cast<Listener*>(data);
  listener->calls_.emplace(++listener->last_, MessageRef(call));
  listener->asked_(listener->last_, request);
  return 1;
}

int Listener::left(sd_bus_message* message, void* data, sd_bus_error*) {
  if (sd_bus_message_is_signal(message, "org.freedesktop.DBus.Local", "Disconnected") == 0) return 0;
  static_cast<Listener*>(data)->drop(sd_bus_message_get_bus(message));
  return 0;
}

void Listener::drop(sd_bus* connection) {
  std::erase_if(calls_, [&](const auto& call) { return sd_bus_message_get_bus(call.second) == connection; });
  if (std::erase(connections_, connection) > 0) sd_bus_close_unref(connection);
  sd_event_source_set_enabled(source_, SD_EVENT_ON);
}

void Listener::answer(std::uint64_t call, const Answer& answer) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  const MessageRef kept = std::move(found->second);
  calls_.erase(found);
  if (const int code = send_answer(kept, answer); code < 0) sd_bus_reply_method_errno(kept, code, nullptr);
  sd_bus* bus = sd_bus_message_get_bus(kept);
  std::uint64_t unread = 0;
  if (sd_bus_get_n_queued_write(bus, &unread) >= 0 && unread > kUnread) drop(bus);
}

}  // namespace p2pd
