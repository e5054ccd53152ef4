// SPDX-License-Identifier: MIT
// Requests from PeerProcess to the second process:
//
//   {"do": "open"}
//     First request; no answer.
//   {"do": "ipc", "devices": [...], "strip_bytes": n, "legacy": [...], "shared": [...], "shared_bytes": [...],
//    "writes": [{"test", "from", "to", "at", "key"}, ...]}
//     `from` and `to` are indices into `devices`. legacy[to] is the CUIpcMemHandle of an arena as 64 numbers, or null;
//     shared[to] is the index of the descriptor for memory of `to`, -1 none, shared_bytes[to] its size.
//     A write begins at `at` bytes of that memory. Answer after all writes: {"not_run": [[number of write, why],
//     ...]}; {..., "faulted": number of write, "fault": "..."} after a fault of a GPU: later writes were not tried.
//   {"do": "all-reduce", "from": device, "to": device, "bytes": n, "replays": n, "keys": [of `from`, of `to`]}
//     Answer: {"sides": [of `from`, of `to`]}, each {"replays", "total_ns", "stopped", as in Reduce, "seen"};
//     {"not_run": why} if it cannot be tried.
//   {"do": "contend", "from": device, "to": device}
//     Answer: {"problem": ""}, exact, or the error found; {"not_run": why} if it cannot be tried.
//   {"do": "share", "test": kManaged or kCompressible, "from": device, "to": device, "key": n}
//     Answer: {"looks": [seen, ...]}, the results on `to`, up to two; {"not_run": why} if it cannot be tried.
//
// A "seen" is {"wrong", "right", "at": [...], "value": [...]}, as in Seen.
// {"error": "..."} reports a CUDA error; the process then exits, as its contexts are unusable.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "probes/bench/device/gpu.hpp"
#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/channel.hpp"

namespace p2pd::bench {

/// Main function of that process: opens every GPU, answers until the channel closes. `parent`: the process that forked
/// it.
[[noreturn]] void serve_peer(int channel, pid_t parent);

/// GPU of the second process.
struct SecondGpu {
  OpenGpu gpu;
  cuda::CUdevice device = -1;
  std::string problem;  ///< reason why it could not be opened; empty: it is open
};

/// CUDA state of the second process; peers are enabled in descending order.
class Second {
 public:
  explicit Second(const Driver& driver) : driver_(driver) {}
  Result<void> open();

  const Driver& driver() const { return driver_; }
  const std::vector<SecondGpu>& gpus() const { return gpus_; }
  const SecondGpu* find(cuda::CUdevice device) const;
  /// Reason why these two GPUs are unusable here; empty: they are usable.
  std::string problem(cuda::CUdevice from, cuda::CUdevice to) const;
  /// Reason why peer access between them could not be enabled; empty: it is enabled.
  std::string refused(cuda::CUdevice from, cuda::CUdevice to) const;

 private:
  void enable_peer(const SecondGpu& from, const SecondGpu& to);

  const Driver& driver_;
  Kernels kernels_;
  std::vector<SecondGpu> gpus_;
  std::map<std::pair<cuda::CUdevice, cuda::CUdevice>, std::string> refused_;
};

/// Memory of the first process, opened here and written to; closed with the object.
class IpcWrites {
 public:
  explicit IpcWrites(const Second& second) : second_(&second) {}
  IpcWrites(const IpcWrites&) = delete;
  IpcWrites& operator=(const IpcWrites&) = delete;
  ~IpcWrites();

  Result<nlohmann::json> run(const Message& request);

 private:
  struct Theirs {
    std::optional<cuda::CUipcMemHandle> legacy;
    std::optional<Result<Mapped>> shared;
  };
  struct Write {
    std::string test;
    std::size_t from;
    std::size_t to;
    u64 at;
    u64 key;
  };
  void take(const Message& request);
  /// Start of the destination of `write`, as mapped for its GPU; an Error: this one write cannot be made.
  Result<cuda::CUdeviceptr> target(const OpenGpu& from, const Write& write);
  Result<cuda::CUdeviceptr> target_of(const Write& write);
  Result<void> enqueue(const OpenGpu& from, cuda::CUdeviceptr strip, const Write& write) const;

  const Second* second_;
  std::vector<cuda::CUdevice> devices_;
  std::vector<Theirs> theirs_;
  u64 strip_bytes_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, cuda::CUdeviceptr> opened_;  ///< by from, to
};

/// Seen for a message. Kept samples only.
nlohmann::json json_of(const Seen& seen);
Seen seen_of(const nlohmann::json& json);

/// Replays an all-reduce of two GPUs in a CUDA graph of each.
Result<nlohmann::json> reduce_in_graph(const Second& second, cuda::CUdevice one, cuda::CUdevice other, u64 bytes,
                                       u64 replays, const std::array<u64, 2>& keys);

/// Lets two GPUs at once add to a sum and draw tickets in the memory of `to`.
Result<nlohmann::json> contend(const Second& second, cuda::CUdevice from, cuda::CUdevice to);

/// Fills memory on `from` and verifies it on `to`; `test` selects its kind.
Result<nlohmann::json> share_memory(const Second& second, const std::string& test, cuda::CUdevice from,
                                    cuda::CUdevice to, u64 key);

/// Operations of each thread of a contention, and number of threads on each GPU.
constexpr u64 kContendEach = 16;
constexpr unsigned kContendBlocks = 2;
constexpr unsigned kContendThreads = 32;

/// Error in the sum and the tickets of both GPUs; empty: exact. Pure.
std::string contention_problem(u64 sum, u64 next_ticket, std::vector<u64> tickets);

}  // namespace p2pd::bench
