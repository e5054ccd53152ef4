// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "probes/bench/device/driver.hpp"
#include "probes/bench/device/pattern.hpp"

namespace p2pd::bench {

/// Kernels of kernels.cu.
enum class Kernel { fill, verify, store, copy, chain, chase, handshake, tag, check_tags, contend, all_reduce };
constexpr std::size_t kKernels = 11;

/// PTX of kernels.cu, assembled once per compute capability and shared by the GPUs that have it.
class Kernels {
 public:
  /// Loads them into the current context, whose compute capability is `sm` (86 for 8.6).
  Result<std::array<cuda::CUfunction, kKernels>> load(const Driver& driver, int sm);

 private:
  std::mutex one_at_a_time_;
  std::map<int, std::string> cubins_;
};

/// Grid and block sizes of a launch.
struct Shape {
  unsigned blocks = 1;
  unsigned slots = 1;  ///< second dimension of the grid
  unsigned threads = 256;
};

/// Opened GPU: context, kernels, two streams, and one arena for all allocations.
///
/// The arena: a header (below), then `out`, the source of transfers, and `in`, their destination, `half` bytes each.
/// A caller that enqueues makes this GPU's context current first; one thread works on a GPU at a time.
class OpenGpu {
 public:
  static constexpr u64 kHeader = 8ULL << 20;  ///< bytes
  static constexpr u64 kHalf = 512ULL << 20;  ///< size of `out` and `in`, if memory allows
  static constexpr u64 kHalfLeast = 4ULL << 20;
  static constexpr u64 kRing = 2ULL << 20;       ///< bytes of the pointer chase
  static constexpr u32 kSeen = 4096;             ///< number of Seen for verifying kernels
  static constexpr u64 kHostBytes = 4ULL << 20;  ///< pinned host memory

  OpenGpu(const Driver& driver, int ordinal) : driver_(&driver), ordinal_(ordinal) {}

  /// Opens context, kernels and streams; then the arena, as large as `most_half` and free memory allow.
  Result<void> open(Kernels& kernels, u64 most_half = kHalf);
  Result<void> use() const { return driver_->check((*driver_)->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

  /// Enqueues a kernel; `arguments` have exactly the types of its parameters (pointers as CUdeviceptr).
  template <class... Arguments>
  Result<void> launch(Kernel kernel, Shape shape, cuda::CUstream stream, Arguments... arguments) const {
    void* parameters[] = {&arguments...};
    return launch_raw(kernel, shape, stream, parameters);
  }
  /// Shape with enough threads to keep the whole GPU busy.
  Shape wide(unsigned slots = 1) const { return {2U * static_cast<unsigned>(multiprocessors_), slots, 256}; }

  // Common operations, enqueued on the first stream.
  /// Writes the pattern of `key`.
  Result<void> fill(cuda::CUdeviceptr to, u64 bytes, u64 key) const {
    return launch(Kernel::fill, wide(), stream_, to, bytes / 8, key);
  }
  /// Repeats the lower half of `word`; both halves of a poison are equal.
  Result<void> set(cuda::CUdeviceptr to, u64 bytes, u64 word) const;
  /// Compares what is at `address` with the pattern of `key`, loading it as `how` says; returns the number of its Seen.
  Result<u32> verify(cuda::CUdeviceptr address, const Slots& slots, u64 key, u64 poison, Load how);

  /// Makes `first` wait until all operations enqueued on `second` so far are done.
  Result<void> wait_for(cuda::CUstream first, const OpenGpu& other, cuda::CUstream second);
  Result<void> finish() const;  ///< waits for both streams

  /// Number of an unused Seen, zeroed; read it with seen() after finish().
  Result<u32> new_seen();
  cuda::CUdeviceptr seen_at(u32 number) const { return arena_ + kSeenAt + number * sizeof(Seen); }
  /// Copies every Seen in use to the host.
  Result<std::vector<Seen>> seen() const;
  /// Part of the pinned host memory; forget() frees all of it.
  Result<std::uint8_t*> host_bytes(u64 bytes);
  Result<void> forget();  ///< frees every Seen and all host bytes; both streams must be idle

  cuda::CUdevice device() const { return device_; }
  cuda::CUcontext context() const { return context_; }
  cuda::CUstream stream() const { return stream_; }
  cuda::CUstream side() const { return side_; }
  int multiprocessors() const { return multiprocessors_; }
  u64 free_bytes() const { return free_; }  ///< before the arena
  u64 total_bytes() const { return total_; }
  u64 arena_bytes() const { return arena_bytes_; }
  u64 half() const { return half_; }
  cuda::CUdeviceptr arena() const { return arena_; }
  cuda::CUdeviceptr mail(int peer, int direction) const {
    return arena_ + kMailAt + (static_cast<u64>(peer) * 2 + static_cast<u64>(direction)) * sizeof(Mailbox);
  }
  cuda::CUdeviceptr timing(int direction) const {
    return arena_ + kTimingAt + static_cast<u64>(direction) * sizeof(Timing);
  }
  cuda::CUdeviceptr ring() const { return arena_ + kRingAt; }
  cuda::CUdeviceptr scratch() const { return arena_ + kScratchAt; }  ///< kScratch bytes
  cuda::CUdeviceptr canary() const { return arena_ + kCanaryAt; }    ///< kCanary bytes
  cuda::CUdeviceptr out() const { return arena_ + kHeader; }
  cuda::CUdeviceptr in() const { return arena_ + kHeader + half_; }

  static constexpr u64 kScratch = 1ULL << 20;
  static constexpr u64 kCanary = 64ULL << 10;

 private:
  // offsets in the header
  static constexpr u64 kSeenAt = 0;           // 4096 x 288 bytes < 2 MiB
  static constexpr u64 kMailAt = 2ULL << 20;  // 2 for each of 16 peers
  static constexpr u64 kTimingAt = kMailAt + (512ULL << 10);
  static constexpr u64 kCanaryAt = kMailAt + (768ULL << 10);
  static constexpr u64 kScratchAt = 3ULL << 20;
  static constexpr u64 kRingAt = 4ULL << 20;
  static_assert(kSeen * sizeof(Seen) <= kMailAt && 32 * sizeof(Mailbox) <= (512ULL << 10) &&
                kRingAt + kRing <= kHeader);

  Result<void> launch_raw(Kernel kernel, Shape shape, cuda::CUstream stream, void** parameters) const;

  const Driver* driver_;
  int ordinal_;
  cuda::CUdevice device_ = 0;
  cuda::CUcontext context_ = nullptr;
  std::array<cuda::CUfunction, kKernels> kernels_{};
  cuda::CUstream stream_ = nullptr;
  cuda::CUstream side_ = nullptr;
  cuda::CUevent order_ = nullptr;  ///< reused: a wait uses its state at the time of the enqueue
  cuda::CUdeviceptr arena_ = 0;
  std::uint8_t* host_ = nullptr;
  u64 host_used_ = 0;
  u32 seen_used_ = 0;
  int multiprocessors_ = 0;
  u64 free_ = 0;
  u64 total_ = 0;
  u64 arena_bytes_ = 0;
  u64 half_ = 0;
};

/// CUDA graph of what was captured on the first stream of one GPU; destroyed with the object.
class Graph {
 public:
  /// Captures what `enqueue` enqueues on gpu.stream(), which must do nothing else: no allocation, no wait.
  static Result<Graph> capture(const Driver& driver, const OpenGpu& gpu, const std::function<Result<void>()>& enqueue);

  /// Enqueues one replay on the stream that it was captured on.
  Result<void> launch() const;

 private:
  Graph(const Driver& driver, const OpenGpu& gpu, cuda::CUgraphExec executable)
      : driver_(&driver),
        gpu_(&gpu),
        executable_(executable),
        destroy_([&driver, executable] { driver->cuGraphExecDestroy(executable); }) {}

  const Driver* driver_;
  const OpenGpu* gpu_;
  cuda::CUgraphExec executable_;
  Cleanup destroy_;
};

}  // namespace p2pd::bench
