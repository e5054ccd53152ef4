// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/late.hpp"

#include <algorithm>
#include <cstring>

namespace p2pd::sim {

namespace {

constexpr auto kLateness = std::chrono::milliseconds(5);

void deliver_all(const std::vector<Write>& writes) {
  for (const Write& write : writes) deliver(write.to, write.data.data(), write.data.size());
}

}  // namespace

void deliver(char* to, const char* data, u64 bytes) {
  if (bytes != sizeof(u64) || reinterpret_cast<u64>(to) % sizeof(u64) != 0) {
    std::memmove(to, data, bytes);
    return;
  }
  u64 value = 0;  // a handshake may be waiting for this word
  std::memcpy(&value, data, sizeof(value));
  std::atomic_ref(*reinterpret_cast<u64*>(to)).store(value, std::memory_order_release);
}

void LateWrites::add(std::vector<Write> writes) {
  if (writes.empty()) return;
  Batch batch{~0ULL, 0, std::move(writes), std::nullopt};
  for (const Write& write : batch.writes) {
    const u64 begin = reinterpret_cast<u64>(write.to);
    batch.begin = std::min(batch.begin, begin);
    batch.end = std::max(batch.end, begin + write.data.size());
  }
  const std::lock_guard lock(mutex_);
  batches_.push_back(std::move(batch));
  waiting_ = true;
}

/// Calls `act` with every batch that may touch this memory, in order; removes those for which it returns true.
template <class Act>
void LateWrites::visit(u64 begin, u64 bytes, Act act) {
  if (!waiting_) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(batches_, [&](Batch& batch) { return batch.begin < begin + bytes && begin < batch.end && act(batch); });
  waiting_ = !batches_.empty();
}

void LateWrites::look(u64 begin, u64 bytes, Clock::time_point enqueued) {
  visit(begin, bytes, [enqueued](Batch& batch) {
    if (!batch.due) batch.due = Clock::now() + kLateness;
    const bool here = *batch.due <= enqueued;
    if (here) deliver_all(batch.writes);
    return here;
  });
}

void LateWrites::arrive(u64 begin, u64 bytes) {
  visit(begin, bytes, [](const Batch& batch) {
    deliver_all(batch.writes);
    return true;
  });
}

void LateWrites::forget(u64 begin, u64 bytes) {
  visit(begin, bytes, [&](Batch& batch) {
    std::erase_if(batch.writes, [&](const Write& write) { return reinterpret_cast<u64>(write.to) - begin < bytes; });
    return batch.writes.empty();
  });
}

}  // namespace p2pd::sim
