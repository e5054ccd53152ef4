// SPDX-License-Identifier: MIT
#include "base/child.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace p2pd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{2'000};       // time from SIGTERM to SIGKILL
constexpr milliseconds kDeathLimit{5'000};  // time from SIGKILL until it counts as stuck in the kernel
constexpr std::size_t kLineLimit = 64U << 10;

}  // namespace

bool Stream::take() {
  if (!fd_) return false;
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(fd_.get(), buffer.data(), buffer.size());
  if (count > 0) {
    keep({buffer.data(), static_cast<std::size_t>(count)});
    return true;
  }
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) fd_.reset();
  return false;
}

std::string Stream::finish() {
  if (!line_.empty()) emit();
  if (dropped_ > 0) kept_ += "\n[p2pd dropped " + std::to_string(dropped_) + " more bytes]\n";
  return std::move(kept_);
}

void Stream::keep(std::string_view bytes) {
  const std::size_t room = std::min(CommandResult::kOutputLimit - kept_.size(), bytes.size());
  kept_.append(bytes.substr(0, room));
  dropped_ += bytes.size() - room;
  if (!*on_line_) return;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t length = std::min({end, bytes.size(), kLineLimit - line_.size()});
    line_.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
    if (length == end) bytes.remove_prefix(1);
    if (length == end || line_.size() == kLineLimit) emit();
  }
}

void Stream::emit() {
  const std::string line = std::exchange(line_, {});
  (*on_line_)(line);
}

Child::~Child() {  // acts only after a failed poll(2) or when a listener throws
  if (settled_) return;
  signal_group(SIGKILL);
  pollfd dead{pidfd_.get(), POLLIN, 0};
  ::poll(&dead, 1, static_cast<int>(kDeathLimit.count()));
  ::waitpid(pid_, nullptr, WNOHANG);
}

Result<Child::Event> Child::watch(Clock::time_point until, int stop_fd, milliseconds renewal,
                                  const std::function<void()>& on_idle) {
  for (;;) {
    std::array<pollfd, 4> fds{{{pidfd_.get(), POLLIN, 0},
                               {stop_fd, POLLIN, 0},  // poll(2) skips negative descriptors
                               {output_.fd(), POLLIN, 0},
                               {errors_.fd(), POLLIN, 0}}};
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    const int wait = static_cast<int>(std::clamp<long long>(left, 0, on_idle ? 1'000 : 3'600'000));
    const int ready = ::poll(fds.data(), fds.size(), wait);
    if (ready < 0 && errno != EINTR) return fail_errno("poll");
    if (ready == 0 && on_idle) on_idle();
    const bool output = fds[2].revents != 0 && output_.take();
    const bool errors = fds[3].revents != 0 && errors_.take();
    if ((output || errors) && renewal > milliseconds{0}) until = Clock::now() + renewal;
    if (fds[0].revents != 0) return Event::exited;
    if (fds[1].revents != 0) return Event::stopped;
    if (Clock::now() >= until) return Event::expired;
  }
}

Result<bool> Child::end() {
  signal_group(SIGTERM);
  if (TRY(watch(Clock::now() + kGrace, -1)) == Event::exited) return true;
  signal_group(SIGKILL);
  settled_ =
      TRY(watch(Clock::now() + kDeathLimit, -1)) != Event::exited;  // a process that survives SIGKILL is left alone
  return !settled_;
}

// Kills the group first: until the process is reaped, no other one can get its number.
Result<int> Child::reap() {
  signal_group(SIGKILL);
  constexpr int kPieces = 64;  // a process that left the group may write for ever
  for (int piece = 0; piece < kPieces && output_.take(); ++piece) {
  }
  for (int piece = 0; piece < kPieces && errors_.take(); ++piece) {
  }
  int status = 0;
  settled_ = true;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return fail_errno("waitpid");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Child::signal_group(int number) const {
  if (::kill(-pid_, number) != 0) ::kill(pid_, number);  // the child may not have made its group yet
}

}  // namespace p2pd
