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

/// A pending write.
struct Write {
  char* to;
  std::string data;
};

/// Writes that arrive after they were reported complete: the first reader does not see them, and operations enqueued 5
/// ms after that read do. So the speed of this machine does not decide whether they are missed.
class LateWrites {
 public:
  void add(std::vector<Write> writes);
  /// Called before an operation, enqueued at that time, reads memory.
  void look(u64 begin, u64 bytes, Clock::time_point enqueued);
  /// Called before memory is written: pending writes arrive first.
  void arrive(u64 begin, u64 bytes);
  /// Called when memory is freed: drops its pending writes.
  void forget(u64 begin, u64 bytes);

 private:
  struct Batch {
    u64 begin;  ///< all its writes lie between these
    u64 end;
    std::vector<Write> writes;
    std::optional<Clock::time_point> due;  ///< none before the first read
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
