// SPDX-License-Identifier: MIT
// Lies about copies from one GPU to the other. cuMemcpyPeerAsync, p2p-bench's way through the host, is forwarded as it
// is.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "tests/sim/liar/liar.hpp"

namespace p2pd::liar {

namespace {

constexpr u64 kMissing = 64ULL << 10;  // bytes that a partial copy lacks
constexpr u64 kChunk = 4ULL << 20;     // of copies through the host or into a decoy
constexpr u64 kMostStale = 1ULL << 20;
constexpr u64 kOverrun = 64;
constexpr int kSlow = 8;
constexpr unsigned kSometimes = 16;
constexpr std::chrono::milliseconds kLate{5};

struct Copy {
  CUdeviceptr to;
  CUdeviceptr from;
  u64 bytes;
  CUstream stream;
  bool operator==(const Copy&) const = default;
};

CUresult make(const Copy& copy) { return real().cuMemcpyAsync(copy.to, copy.from, copy.bytes, copy.stream); }

/// Calls `one` with each part of a copy.
template <class One>
CUresult in_chunks(const Copy& copy, One one) {
  for (u64 at = 0; at < copy.bytes; at += kChunk) {
    const CUresult result = one(Copy{copy.to + at, copy.from + at, std::min(kChunk, copy.bytes - at), copy.stream});
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

/// Replaces a byte by the next one, which is equal in one case of 256.
CUresult corrupt(const Copy& copy, u64 number) {
  const u64 at = bench::mix64(number) % copy.bytes;
  return make({copy.to + at, copy.from + (at + 1) % copy.bytes, 1, copy.stream});
}

CUresult swap_halves(const Copy& copy) {
  if (copy.bytes < 8192) return make(copy);
  const u64 half = copy.bytes / 2;
  const CUresult first = make({copy.to, copy.from + copy.bytes - half, half, copy.stream});
  return first != CUDA_SUCCESS ? first : make({copy.to + half, copy.from, copy.bytes - half, copy.stream});
}

u64 with_overrun(const Copy& copy) {
  const auto room = [](CUdeviceptr at) {
    const auto block = tracked().find(at);
    return block ? block->begin + block->bytes - at : 0;
  };
  return std::max(copy.bytes, std::min({copy.bytes + kOverrun, room(copy.to), room(copy.from)}));
}

/// Each copy delivers the data of the previous one of the same length; the first delivers its own.
CUresult make_stale(const Copy& copy) {
  if (copy.bytes > kMostStale) return make(copy);
  static std::mutex mutex;
  static std::map<u64, CUdeviceptr> kept;
  const std::lock_guard lock(mutex);
  const auto found = kept.find(copy.bytes);
  CUresult result = make({copy.to, found == kept.end() ? copy.from : found->second, copy.bytes, copy.stream});
  if (result != CUDA_SUCCESS) return result;
  if (found == kept.end()) result = real().cuMemAlloc(&kept[copy.bytes], copy.bytes);
  return result != CUDA_SUCCESS ? result : make({kept[copy.bytes], copy.from, copy.bytes, copy.stream});
}

CUresult through_host(const Copy& copy) {
  static std::mutex mutex;
  static std::map<CUstream, void*> hosts;
  const std::lock_guard lock(mutex);
  void*& host = hosts[copy.stream];
  if (host == nullptr) {
    const CUresult made = real().cuMemHostAlloc(&host, kChunk, CU_MEMHOSTALLOC_PORTABLE);
    if (made != CUDA_SUCCESS) return made;
  }
  const auto middle = reinterpret_cast<CUdeviceptr>(host);
  return in_chunks(copy, [&](const Copy& part) {
    const CUresult out = make({middle, part.from, part.bytes, part.stream});
    return out != CUDA_SUCCESS ? out : make({part.to, middle, part.bytes, part.stream});
  });
}

/// Makes copies in a thread of its own, each a while after the earlier work of its stream has ended.
class Laggard {
 public:
  Laggard() : thread_([this] { run(); }) {}
  ~Laggard() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Laggard(const Laggard&) = delete;
  Laggard& operator=(const Laggard&) = delete;

  CUresult take(const Copy& copy) {
    CUevent before = nullptr;
    CUresult result = real().cuEventCreate(&before, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = real().cuEventRecord(before, copy.stream);
    if (result != CUDA_SUCCESS) return result;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({copy, before, tracked().device_of(copy.stream)});
    }
    changed_.notify_all();
    return CUDA_SUCCESS;
  }

 private:
  struct Late {
    Copy copy;
    CUevent before;
    int device;
  };

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      const Late late = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      deliver(late);
    }
  }

  void deliver(const Late& late) {
    const Functions& driver = real();
    driver.cuCtxSetCurrent(tracked().context_of(late.device));
    CUstream& stream = streams_[late.device];
    if (stream == nullptr && driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return;
    driver.cuEventSynchronize(late.before);
    std::this_thread::sleep_for(kLate);
    make({late.copy.to, late.copy.from, late.copy.bytes, stream});
    driver.cuStreamSynchronize(stream);
    driver.cuEventDestroy(late.before);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Late> waiting_;
  std::map<int, CUstream> streams_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

/// After some milliseconds of other work of its GPU, through the host and back: a reader that does not wait is too
/// early, however fast the GPU is.
CUresult delayed(const Copy& copy) {
  constexpr int kTimes = 16;
  const int device = tracked().device_of(copy.stream);
  const CUdeviceptr decoy = own_memory(device, 2 * kChunk, 0);
  for (int i = 0; i < kTimes && device == told().from && decoy != 0; ++i) {
    const CUresult result = through_host({decoy, decoy + kChunk, kChunk, copy.stream});
    if (result != CUDA_SUCCESS) return result;
  }
  return make(copy);
}

std::mutex last_mutex;
Copy last{};

CUresult skip_repeat(const Copy& copy) {
  const std::lock_guard lock(last_mutex);
  if (copy == last) return CUDA_SUCCESS;
  last = copy;
  return make(copy);
}

/// By the GPU that receives: what it reads is not the other's memory.
CUresult pull(const Copy& copy) {
  if (is(Lie::own_memory)) {
    const auto theirs = tracked().find(copy.from);
    const auto own = tracked().find(copy.to);
    if (!theirs || !own || copy.from - theirs->begin + copy.bytes > own->bytes) return make(copy);
    return make({copy.to, own->begin + (copy.from - theirs->begin), copy.bytes, copy.stream});
  }
  const CUresult made = make(copy);
  if (made != CUDA_SUCCESS || copy.bytes < 4) return made;
  return real().cuMemsetD32Async(copy.to, is(Lie::ones_reads) ? ~0U : 0U, copy.bytes / 4, copy.stream);
}

CUresult lie_about(const Copy& copy) {
  static std::atomic<u64> copies = 0;
  const u64 number = ++copies;
  CUresult result = CUDA_SUCCESS;
  switch (told().lie) {
    case Lie::corrupt_byte: result = make(copy); return result != CUDA_SUCCESS ? result : corrupt(copy, number);
    case Lie::sometimes_corrupt:
      result = make(copy);
      return result != CUDA_SUCCESS || number % kSometimes != 0 ? result : corrupt(copy, number);
    case Lie::drop_copies: return CUDA_SUCCESS;
    case Lie::partial_copy:
      return make({copy.to, copy.from, copy.bytes > kMissing ? copy.bytes - kMissing : copy.bytes, copy.stream});
    case Lie::swapped_halves: return swap_halves(copy);
    case Lie::elsewhere: {
      const CUdeviceptr decoy = own_memory(told().to, kChunk, 0);
      return in_chunks(copy, [&](const Copy& part) { return make({decoy, part.from, part.bytes, part.stream}); });
    }
    case Lie::overrun: return make({copy.to, copy.from, with_overrun(copy), copy.stream});
    case Lie::stale: return make_stale(copy);
    case Lie::late: {
      static Laggard laggard;
      return laggard.take(copy);
    }
    case Lie::staged: return through_host(copy);
    case Lie::slow:
      for (int i = 0; i < kSlow && result == CUDA_SUCCESS; ++i) result = make(copy);
      return result;
    case Lie::skip_repeats: return skip_repeat(copy);
    case Lie::no_wait: return delayed(copy);
    case Lie::own_memory:
    case Lie::zero_reads:
    case Lie::ones_reads: return tracked().device_of(copy.stream) == told().to ? pull(copy) : make(copy);
    case Lie::copy_fault:
      result = make(copy);
      fail_context(tracked().device_of(copy.stream));
      return result;
    case Lie::stall_copy: tracked().stall(copy.stream); return make(copy);
    default: return make(copy);
  }
}

}  // namespace

CUdeviceptr own_memory(int device, u64 bytes, unsigned value) {
  static std::mutex mutex;
  static std::map<std::tuple<int, u64, unsigned>, CUdeviceptr> made;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = made.try_emplace({device, bytes, value}, 0);
  if (!is_new) return place->second;
  const Functions& driver = real();
  driver.cuCtxSetCurrent(tracked().context_of(device));
  if (driver.cuMemAlloc(&place->second, bytes) == CUDA_SUCCESS) {
    driver.cuMemsetD32Async(place->second, value, bytes / 4, nullptr);
    driver.cuStreamSynchronize(nullptr);
  }
  driver.cuCtxSetCurrent(tracked().context_of(here));
  return place->second;
}

void forget_last_copy(int device) {
  if (device != told().from) return;
  const std::lock_guard lock(last_mutex);
  last = {};
}

CUresult copy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (context_failed(here)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto source = tracked().find(from);
  const auto target = tracked().find(to);
  const bool crosses = source && target && source->device == told().from && target->device == told().to && bytes > 0;
  return crosses ? lie_about({to, from, bytes, stream}) : make({to, from, bytes, stream});
}

}  // namespace p2pd::liar
