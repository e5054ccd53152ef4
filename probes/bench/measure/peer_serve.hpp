// SPDX-License-Identifier: MIT
// The second process, which PeerProcess asks:
//
//   {"do": "open"}
//       First of all; no answer.
//   {"do": "ipc", "devices": [...], "strip_bytes": n, "legacy": [...], "shared": [...], "shared_bytes": [...],
//    "writes": [{"test", "from", "to", "at", "key"}, ...]}
//       `from` and `to` count in `devices`. legacy[to] is the CUIpcMemHandle of an arena as 64 numbers, or null;
//       shared[to] tells which descriptor beside the message is memory of `to`, -1 none, shared_bytes[to] its size.
//       A write goes `at` bytes into that memory. Answer, when all is written: {"not_run": [[number of write, why],
//       ...]}; {..., "faulted": number of write, "fault": "..."} where a GPU faulted: later writes were not tried.
//   {"do": "contend", "from": device, "to": device}
//       Answer: {"problem": ""}, exact, or how it came out; {"not_run": why} where it cannot be tried.
//   {"do": "managed", "from": device, "to": device, "key": n}
//       Answer: {"looks": [{"wrong", "right", "at", "value"}, ...]}, what `to` saw before its pages migrated and after, as in
//       Seen; {"not_run": why} where it cannot be tried.
//
// {"error": "..."} answers what went wrong in CUDA; the process ends then, as its contexts are of no use any more.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "probes/bench/device/gpu.hpp"
#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/channel.hpp"

namespace p2pd::bench {

/// The life of that process: opens every GPU, answers until the channel closes. `parent` is who forked it.
[[noreturn]] void serve_peer(int channel, pid_t parent);

/// A GPU as the second process has it.
struct SecondGpu {
  OpenGpu gpu;
  cuda::CUdevice device = -1;
  std::string problem;  ///< why it could not be opened; empty when it is
};

/// What the second process has of CUDA; peers are enabled in descending order.
class Second {
 public:
  explicit Second(const Driver& driver) : driver_(driver) {}
  Result<void> open();

  const Driver& driver() const { return driver_; }
  const std::vector<SecondGpu>& gpus() const { return gpus_; }
  const SecondGpu* find(cuda::CUdevice device) const;
  /// Why these two GPUs are not to be used here; empty when they are.
  std::string problem(cuda::CUdevice from, cuda::CUdevice to) const;
  /// Why peer access between them could not be enabled; empty when it is.
  std::string refused(cuda::CUdevice from, cuda::CUdevice to) const;

 private:
  void enable_peer(const SecondGpu& from, const SecondGpu& to);

  const Driver& driver_;
  Kernels kernels_;
  std::vector<SecondGpu> gpus_;
  std::map<std::pair<cuda::CUdevice, cuda::CUdevice>, std::string> refused_;
};

/// The first process's memory, opened here and written to; closed again with the object.
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
  /// Where the memory that `write` goes to begins, as its GPU sees it; an Error: this one write cannot be done.
  Result<cuda::CUdeviceptr> target(const OpenGpu& from, const Write& write);
  Result<cuda::CUdeviceptr> target_of(const Write& write);
  Result<void> enqueue(const OpenGpu& from, cuda::CUdeviceptr strip, const Write& write) const;

  const Second* second_;
  std::vector<cuda::CUdevice> devices_;
  std::vector<Theirs> theirs_;
  u64 strip_bytes_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, cuda::CUdeviceptr> opened_;  ///< by from, to
};

/// Two GPUs at once add to a sum and draw tickets in the memory of `to`.
Result<nlohmann::json> contend(const Second& second, cuda::CUdevice from, cuda::CUdevice to);

/// Pages that lie on `from` are filled there, loaded by `to`, then migrate there.
Result<nlohmann::json> share_managed(const Second& second, cuda::CUdevice from, cuda::CUdevice to, u64 key);

/// What each thread of a contention does, and how many there are on each GPU.
constexpr u64 kContendEach = 16;
constexpr unsigned kContendBlocks = 2;
constexpr unsigned kContendThreads = 32;

/// How the sum and the tickets of both GPUs came out; empty when exact. Pure.
std::string contention_problem(u64 sum, u64 next_ticket, std::vector<u64> tickets);

}  // namespace p2pd::bench
