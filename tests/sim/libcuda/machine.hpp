// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "probes/bench/device/cuda.hpp"

namespace p2pd::sim {

using u64 = unsigned long long;
using bench::cuda::CUresult;

/// Engine that moves the bytes: a copy engine, or loads and stores of a kernel.
enum class Engine { copy, store, load };

/// Faults of traffic from one GPU to another; README.md describes each.
enum class Wrong {
  wrong_byte,
  dead_direction,
  lost_stores,
  private_mirror,
  alias,
  misroute,
  stale,
  late,
  fast,
  slow,
  hang,
  xid,
  no_peer,
  refuse,
  atomics_wrong,
  atomics_fault,
  managed_fault,
  ipc,
  busy,
  gone,
};

/// One row of "faults".
struct Fault {
  Wrong wrong = Wrong::wrong_byte;
  std::optional<int> from;  ///< none: any GPU
  std::optional<int> to;
  std::optional<Engine> engine;  ///< none: any
  bool graph = false;            ///< only what a CUDA graph replays
  bool compressible = false;     ///< only of compressible memory
  u64 at = 0;
  u64 after = 0;  ///< transfers that succeed before it starts
  int other = 0;
  CUresult error = bench::cuda::CUDA_SUCCESS;  ///< what a refused call returns
  std::atomic<u64> transfers = 0;              ///< that it could have hit so far

  bool covers(int source, int destination) const;
  bool covers(int source, int destination, Engine by) const;
};

/// The path from one GPU to another. GB/s are 10^9 bytes a second, that is bytes a nanosecond.
struct Link {
  double gb_s = 0;       ///< of the copy engine
  double both_gb_s = 0;  ///< of both directions together
  double latency_ns = 0;
  double staged_gb_s = 0;  ///< without peer access, through the host
  double staged_latency_ns = 0;
  double load_gb_s = 0;
  double store_gb_s = 0;
};

struct DeviceModel {
  std::string name;
  bench::cuda::CUuuid uuid{};
  std::string address;
  u64 memory_bytes = 0;
  u64 free_bytes = 0;  ///< before this process has taken any
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int compute_mode = 0;
  bool atomics = false;
  bool managed = true;       ///< managed memory that GPUs use at the same time
  bool compressible = true;  ///< memory that it compresses
};

/// The simulated machine, as its JSON file describes it.
struct Machine {
  int driver_version = 12080;
  CUresult init_error = bench::cuda::CUDA_SUCCESS;
  std::string kernel_log;         ///< empty: none
  u64 patience = 1;               ///< times the limit of a wait in a handshake
  u64 host_bytes = 1ULL << 40;    ///< of the host, for virtual memory management
  bool host_aliased = false;      ///< all of it is the first that was allocated
  std::function<void()> on_peer;  ///< called before peer access is enabled; empty: nothing
  std::pair<int, int> newest_ptx{99, 0};
  Link link;
  std::map<std::pair<int, int>, Link> links;  ///< of pairs that differ
  std::vector<DeviceModel> devices;
  std::deque<Fault> faults;

  /// Throws std::exception whose text is one line.
  static std::unique_ptr<Machine> read(const std::string& path);
  static std::unique_ptr<Machine> from(const nlohmann::json& description);

  /// CUDA_VISIBLE_DEVICES: UUIDs "GPU-..." of the devices that are left, in their order; those before them move up.
  void show_only(std::string_view uuids);

  int count() const { return static_cast<int>(devices.size()); }
  const DeviceModel& device(int number) const { return devices[static_cast<std::size_t>(number)]; }
  const Link& link_of(int from, int to) const;
  /// The first fault of this kind on a pair, whatever its `after`; null: none.
  Fault* fault(Wrong wrong, int from, int to);
  /// The factor that "fast" and "slow" put on a rate.
  double haste(int from, int to, Engine engine) const;
  /// Checks that `device` could reach memory of `peer`.
  bool can_access(int device, int peer);
};

}  // namespace p2pd::sim
