// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/sim/libcuda/late.hpp"
#include "tests/sim/libcuda/memory.hpp"
#include "tests/sim/libcuda/timeline.hpp"

namespace p2pd::sim {

/// The primary context of a device.
struct Context {
  explicit Context(int number) : device(number) {}
  const int device;
  std::atomic<int> users = 0;
  std::atomic<u64> peers = 0;                               ///< devices whose memory it may use, one bit each
  std::atomic<CUresult> error = bench::cuda::CUDA_SUCCESS;  ///< sticky
};

/// Lets kernels that wait for each other sleep: there are more of them than processors, and some of those are emulated.
class Doorbell {
 public:
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // orders the store before the read of `waiting_`
    if (waiting_ == 0) return;
    const std::lock_guard lock(mutex_);
    bell_.notify_all();
  }
  /// Waits until it rings, or for a millisecond, since not every change rings. Does not wait if `reached` holds.
  template <class Condition>
  void wait(Condition reached) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    if (!reached()) bell_.wait_for(lock, std::chrono::milliseconds(1));
    --waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  std::atomic<int> waiting_ = 0;
};

/// The running machine.
struct Simulation {
  explicit Simulation(Machine& described) : machine(described), used(described.devices.size()) {}
  Machine& machine;
  std::vector<std::atomic<u64>> used;  ///< bytes of each device's memory
  std::atomic<u64> host_used = 0;
  AddressSpace space;
  LateWrites late;
  Doorbell doorbell;
  std::atomic<bool> stopping = false;
};

/// Effects of the faults on one transfer.
struct Effects {
  bool lost = false;    ///< writes vanish, reads give all ones
  bool missed = false;  ///< of `stale`: this one does not arrive
  const Fault* wrong_byte = nullptr;
  const Fault* alias = nullptr;
  const Fault* misroute = nullptr;
  const Fault* mirror = nullptr;
  const Fault* stale = nullptr;
  const Fault* late = nullptr;

  bool any() const { return lost || wrong_byte || alias || misroute || mirror || stale || late; }
};

/// Ends an operation, and with it its context.
struct Trap {
  CUresult error;
};

class Operation;

/// Memory as one operation sees it, faults included. Offsets count from the address it was opened at.
class Window {
 public:
  void read(u64 at, void* to, u64 bytes) const {
    if (disturbed_)
      read_disturbed(at, static_cast<char*>(to), bytes);
    else
      std::memcpy(to, begin_ + at, bytes);
  }
  void write(u64 at, const void* from, u64 bytes) {
    if (disturbed_)
      write_disturbed(at, static_cast<const char*>(from), bytes);
    else
      std::memmove(begin_ + at, from, bytes);
  }
  /// Words, in the memory order that handshakes need.
  u64 load(u64 at) const {
    if (!disturbed_) return std::atomic_ref(*word(at)).load(std::memory_order_acquire);
    u64 value = 0;
    read(at, &value, sizeof(value));
    return value;
  }
  void store(u64 at, u64 value) {
    if (disturbed_)
      write(at, &value, sizeof(value));
    else
      std::atomic_ref(*word(at)).store(value, std::memory_order_release);
  }

  const char* begin() const { return begin_; }
  int device() const { return ranges_.front().device; }
  u64 left() const;  ///< bytes from here to the end of the memory
  bool lost() const { return store_.lost; }

 private:
  friend class Operation;
  u64* word(u64 at) const { return reinterpret_cast<u64*>(begin_ + at); }
  void read_disturbed(u64 at, char* to, u64 bytes) const;
  void write_disturbed(u64 at, const char* data, u64 bytes);
  char* place(const Effects& effects, u64 at, u64& bytes) const;
  void put(u64 at, const char* data, u64 bytes);

  Operation* operation_ = nullptr;
  std::vector<Range> ranges_;  ///< kept alive
  char* begin_ = nullptr;
  u64 offset_ = 0;  ///< in the arena
  bool disturbed_ = false;
  Effects load_;
  Effects store_;
  const Fault* mirror_ = nullptr;  ///< loads see what this device's own lost stores wrote
  std::optional<Range> stray_;     ///< where misrouted traffic lands
};

struct Grid {
  unsigned blocks = 1;
  unsigned rows = 1;  ///< second dimension
  unsigned threads = 1;
  u64 all() const { return u64{blocks} * threads; }
};

enum class Use { load, store, both };

/// One operation of a stream, while it runs.
class Operation {
 public:
  Operation(Simulation& simulation, Context& context, Grid shape, Clock::time_point enqueued)
      : grid(shape), simulation_(simulation), context_(context), enqueued_(enqueued) {}
  ~Operation() { simulation_.late.add(std::move(late_)); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Memory that a kernel uses; traps when this device has no access to it.
  Window open(u64 address, u64 bytes, Use use);
  /// Memory that a copy engine reads.
  Window source(u64 address, u64 bytes);
  /// Memory that a copy engine writes, `from` being the device that the data comes from.
  Window target(u64 address, u64 bytes, int from, bool direct);
  /// One object of local or host memory, for accesses that are not under test.
  template <class Object>
  Object* object(u64 address) {
    return reinterpret_cast<Object*>(open_plain(address, sizeof(Object), alignof(Object), Use::both).begin_);
  }
  /// Checks that `wrong` disturbs atomics on a word that may be a peer's.
  bool atomics(Wrong wrong, const Window& window) const;
  /// Migrates managed memory to another device, or to the host.
  void prefetch(u64 address, int to);
  /// Counts a transfer, and returns the effects on it. Does not return if it hangs.
  Effects cross(int from, int to, Engine engine, bool compressible = false);

  const Grid grid;
  bool replayed = false;  ///< a CUDA graph does it
  int device() const { return context_.device; }
  bool stopping() const { return simulation_.stopping; }
  u64 patience() const { return simulation_.machine.patience; }
  Doorbell& doorbell() const { return simulation_.doorbell; }
  const Link& link(int from, int to) const { return simulation_.machine.link_of(from, to); }

 private:
  friend class Window;
  Window locate(u64 address, u64 bytes);
  Window open_plain(u64 address, u64 bytes, u64 alignment, Use use);
  void disturb(Window& window, const Effects& load, const Effects& store);
  /// Place of managed memory once this device has accessed it.
  int touch(const Range& range);
  void migrate(const Range& range, int to);  ///< its mutex is held
  /// A record of the kernel's log, as /dev/kmsg gives it, by one GPU.
  void log_xid(int gpu, const std::string& what) const;

  Simulation& simulation_;
  Context& context_;
  const Clock::time_point enqueued_;
  std::vector<Write> late_;
};

/// Checks that `context` may use this memory.
bool may_access(const Context& context, const Range& range);
/// Cost of moving bytes directly from one device to another.
Cost price(const Machine& machine, int from, int to, u64 bytes, Engine engine);

constexpr double kLocalGbS = 1000;
constexpr double kLocalLatencyNs = 300;

}  // namespace p2pd::sim
