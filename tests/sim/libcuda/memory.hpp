// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/sim/libcuda/machine.hpp"

namespace p2pd::sim {

constexpr u64 kPage = 4096;
constexpr u64 kGranularity = 2ULL << 20;  ///< of VMM, as the real driver has it
constexpr int kHost = -1;                 ///< the "device" of host memory

constexpr u64 round_up(u64 bytes, u64 unit) { return (bytes + unit - 1) / unit * unit; }

/// Physical memory of one device: a memfd, so that other processes can map it, too. Freed with its last user.
class Memory {
 public:
  /// Null if no such memory is available. `used` counts the bytes of the device that are taken.
  static std::shared_ptr<Memory> create(int device, u64 bytes, std::atomic<u64>* used);
  /// Memory of another process; its device is in the name of the memfd. Null when `fd` is not ours. Takes `fd`.
  static std::shared_ptr<Memory> adopt(int fd);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_; }
  int device() const { return device_; }
  u64 bytes() const { return bytes_; }

  bool compressible = false;

 private:
  Memory(int fd, int device, u64 bytes, std::atomic<u64>* used);
  int fd_;
  int device_;
  u64 bytes_;
  std::atomic<u64>* used_;
};

/// A piece of this process's address space, freed with its last user.
class Region {
 public:
  explicit Region(u64 bytes, bool writable = false);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool valid() const { return begin_ != nullptr; }
  char* begin() const { return begin_; }
  u64 address() const { return reinterpret_cast<u64>(begin_); }
  u64 bytes() const { return bytes_; }

 private:
  char* begin_ = nullptr;
  u64 bytes_;
};

/// Data that one GPU stored to another's memory and only that GPU sees, or data that it has read there before.
struct Shadow {
  explicit Shadow(u64 bytes) : data(bytes, true), known(bytes, true) {}
  Region data;
  Region known;  ///< a byte that is not 0 for each byte of `data` that counts
};

/// Place of an allocation, or of a reservation that parts of one are mapped into. Offsets of faults count from here.
struct Arena {
  explicit Arena(u64 bytes, bool has_holes) : region(bytes), holes(has_holes) {}
  Region region;
  const bool holes;  ///< a reservation: its unmapped parts must not be accessed

  Shadow& shadow(const Fault* fault, int reader);

 private:
  std::mutex mutex_;
  std::map<std::pair<const Fault*, int>, Shadow> shadows_;
};

/// The devices that may use a mapping, one bit each; shared by all allocations of a pool.
using Grant = std::shared_ptr<std::atomic<u64>>;

/// Pages of managed memory, all of which are in one place.
struct Managed {
  std::mutex mutex;  ///< held while they migrate
  std::atomic<int> place = kHost;
  int preferred = kHost;
  u64 accessed_by = 0;  ///< devices that map them at the preferred location, one bit each
};

/// Memory at an address.
struct Range {
  u64 begin = 0;
  u64 bytes = 0;
  int device = kHost;
  std::shared_ptr<Arena> arena;
  std::shared_ptr<Memory> memory;    ///< null: host memory
  Grant grant;                       ///< null: devices that have enabled peer access to it
  std::shared_ptr<Managed> managed;  ///< null: memory that does not migrate

  u64 end() const { return begin + bytes; }
};

/// All memory that the driver knows in this process, by address.
class AddressSpace {
 public:
  /// Maps `memory` into `arena`, `offset` bytes from its start; false when that fails.
  bool map(const std::shared_ptr<Arena>& arena, u64 offset, u64 bytes, const std::shared_ptr<Memory>& memory,
           u64 memory_offset, const Grant& grant, std::shared_ptr<Managed> managed = nullptr);
  /// Removes the range that begins at `begin`, and returns it; its address is left without access.
  std::optional<Range> unmap(u64 begin);

  std::optional<Range> find(u64 address) const;
  /// The ranges that cover [begin, begin + bytes) without a gap, on one device; empty: there are none.
  std::vector<Range> cover(u64 begin, u64 bytes) const;
  /// The largest range of a device.
  std::optional<Range> largest(int device) const;

 private:
  mutable std::mutex mutex_;
  std::map<u64, Range> ranges_;
};

}  // namespace p2pd::sim
