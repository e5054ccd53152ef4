// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/libcuda/machine.hpp"

namespace p2pd::sim {

using Clock = std::chrono::steady_clock;

/// A write on its way.
struct Write {
  char* to;
  std::string data;
};

/// Writes that arrive after they were reported complete: whoever looks first sees nothing of them, and what is enqueued
/// 5 ms after that look finds them there. So it does not depend on how fast this machine is that they are missed.
class LateWrites {
 public:
  void add(std::vector<Write> writes);
  /// Before memory is read by what was enqueued at that time.
  void look(u64 begin, u64 bytes, Clock::time_point enqueued);
  /// Before memory is written: what is under way comes first.
  void arrive(u64 begin, u64 bytes);
  /// The memory goes away.
  void forget(u64 begin, u64 bytes);

 private:
  struct Batch {
    u64 begin;  ///< all its writes lie between these
    u64 end;
    std::vector<Write> writes;
    std::optional<Clock::time_point> due;  ///< none before the first look
  };
  template <class Act>
  void visit(u64 begin, u64 bytes, Act act);

  std::mutex mutex_;
  std::deque<Batch> batches_;
  std::atomic<bool> waiting_ = false;
};

/// Puts `bytes` at `to`; a word that a handshake may be waiting for arrives whole.
void deliver(char* to, const char* data, u64 bytes);

}  // namespace p2pd::sim
