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

/// One output stream of a running command: what is kept of it, and its lines for the listener.
class Stream {
 public:
  Stream(Descriptor fd, const std::function<void(std::string_view)>& on_line) : fd_(std::move(fd)), on_line_(&on_line) {}

  int fd() const { return fd_.get(); }
  /// Takes one piece of what is there; false when there is nothing now, or nothing ever again.
  bool take();
  /// All that is kept.
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

/// A process that was started: waits for it within bounds, and never leaves its group behind.
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

  /// Takes output until the process has exited, `until` has come, or `stop_fd` is readable. With `renewal`, each
  /// output puts `until` off to that long after it.
  Result<Event> watch(Clock::time_point until, int stop_fd, std::chrono::milliseconds renewal = {});
  /// SIGTERM, a grace, SIGKILL; false when even that does not end it.
  Result<bool> end();
  /// What it wrote so far, with `status`.
  CommandResult result(int status) { return {status, output_.finish(), errors_.finish()}; }
  /// After the exit: kills what is left of the group, takes what is left of the output; the status.
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
