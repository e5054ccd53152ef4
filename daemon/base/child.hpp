// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/command.hpp"
#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One output stream of a running command: keeps its output and passes its lines to the listener.
class Stream {
 public:
  Stream(Descriptor fd, const std::function<void(std::string_view)>& on_line)
      : fd_(std::move(fd)), on_line_(&on_line) {}

  int fd() const { return fd_.get(); }
  /// Takes one piece of available output; false if there is none now, or the stream has ended.
  bool take();
  /// Returns all kept output.
  std::string finish();

 private:
  void keep(std::string_view bytes);
  void emit();

  Descriptor fd_;
  const std::function<void(std::string_view)>* on_line_;
  std::string kept_;
  std::string line_;
  std::size_t dropped_ = 0;
};

/// A started process: waits for it within bounds, and never leaves its group behind.
class Child {
 public:
  enum class Event { exited, expired, stopped };
  using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC

  Child(pid_t pid, Descriptor pidfd, Stream output, Stream errors)
      : pid_(pid), pidfd_(std::move(pidfd)), output_(std::move(output)), errors_(std::move(errors)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  bool watched() const { return static_cast<bool>(pidfd_); }

  /// Takes output until the process has exited, `until` has passed or `stop_fd` is readable. With `renewal`, each
  /// output moves `until` to that long after the output. Calls `on_idle` after each second without output.
  Result<Event> watch(Clock::time_point until, int stop_fd, std::chrono::milliseconds renewal = {},
                      const std::function<void()>& on_idle = {});
  /// Sends SIGTERM, waits, sends SIGKILL; false if the process survives both.
  Result<bool> end();
  /// Returns its output so far, with `status`.
  CommandResult result(int status) { return {status, output_.finish(), errors_.finish()}; }
  /// Kills the rest of the group after the exit, takes the rest of the output; returns the status.
  Result<int> reap();

 private:
  void signal_group(int number) const;

  pid_t pid_;
  Descriptor pidfd_;
  Stream output_;
  Stream errors_;
  bool settled_ = false;
};

}  // namespace p2pd
