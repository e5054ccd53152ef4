// SPDX-License-Identifier: MIT
#include "worker/listener.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/directories.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr const char* kUser = "p2pd";

/// Client connection; answers may come from another thread, after the client has left.
struct Connection {
  Descriptor fd;
  std::string received;
};

/// Writes a line, or drops it: a client that does not read must not block the worker.
void send_line(int fd, const Answer& answer) {
  const std::string line = to_json(answer).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  (void)!::send(fd, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

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

/// Reads the available data; returns false at the end of the input.
bool take(Connection& connection, Mailbox& mailbox) {
  std::array<char, Listener::kLine> buffer;
  const ssize_t count = ::recv(connection.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
  connection.received.append(buffer.data(), static_cast<std::size_t>(count));
  for (std::size_t end; (end = connection.received.find('\n')) != std::string::npos;) {
    const Result<Request> request = request_from_json(parse_json(std::string_view(connection.received).substr(0, end)));
    connection.received.erase(0, end + 1);
    if (!request) {
      send_line(connection.fd.get(), Failure(request.error()));
      continue;
    }
    auto back = std::make_shared<Descriptor>(::fcntl(connection.fd.get(), F_DUPFD_CLOEXEC, 3));
    mailbox.post({*request, [back](const Answer& answer) { send_line(back->get(), answer); }});
  }
  if (connection.received.size() <= Listener::kLine) return true;
  send_line(connection.fd.get(), fail(ErrorCode::invalid, fmt::format("a line of over {} bytes", Listener::kLine)));
  return false;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(Mailbox& mailbox, int stop_fd) {
  const bool passed = ::sd_listen_fds(1) == 1;
  Descriptor socket = passed ? Descriptor(SD_LISTEN_FDS_START) : TRY(make_socket(worker_socket()));
  if (passed) ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Listener>(new Listener(mailbox, stop_fd, std::move(socket), !passed));
}

std::unique_ptr<Listener> Listener::for_signals(Mailbox& mailbox, int stop_fd) {
  return std::unique_ptr<Listener>(new Listener(mailbox, stop_fd, Descriptor(), false));
}

Listener::Listener(Mailbox& mailbox, int stop_fd, Descriptor socket, bool own)
    : mailbox_(mailbox),
      stop_fd_(stop_fd),
      socket_(std::move(socket)),
      own_(own),
      quit_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { serve(); }) {}

Listener::~Listener() {
  ::eventfd_write(quit_.get(), 1);
  thread_.join();
  if (own_) ::unlink(worker_socket().c_str());
}

void Listener::serve() {
  std::vector<Connection> connections;
  int stop_fd = stop_fd_;
  for (;;) {
    std::vector<pollfd> polled = {{quit_.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
    polled.push_back({connections.size() < kConnections ? socket_.get() : -1, POLLIN, 0});
    for (const Connection& connection : connections) polled.push_back({connection.fd.get(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) {
      stop_fd = -1;
      mailbox_.stop();
    }
    for (std::size_t i = connections.size(); i-- > 0;)
      if (polled[i + 3].revents != 0 && !take(connections[i], mailbox_))
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
    if (polled[2].revents == 0) continue;
    Descriptor fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) continue;
    if (may_ask(fd.get()))
      connections.push_back({std::move(fd), {}});
    else
      send_line(fd.get(), fail(ErrorCode::denied, "only root, and the service p2pd, may ask the worker",
                               "\"p2pctl\" asks over the bus"));
  }
}

}  // namespace p2pd
