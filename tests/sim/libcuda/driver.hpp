// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/sim/libcuda/kernels.hpp"

namespace p2pd::sim {

using namespace bench::cuda;

// codes that p2p-bench has no name for
constexpr auto kNotInitialized = static_cast<CUresult>(3);
constexpr auto kUnavailable = static_cast<CUresult>(46);
constexpr auto kInvalidContext = static_cast<CUresult>(201);
constexpr auto kInvalidHandle = static_cast<CUresult>(400);
constexpr auto kNotEnabled = static_cast<CUresult>(705);

/// Objects that were given out as opaque handles.
template <class Object, class Handle>
class Handles {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const auto handle = reinterpret_cast<Handle>(object.get());
    const std::lock_guard lock(mutex_);
    objects_[handle] = std::move(object);
    return handle;
  }
  /// Null: no such handle.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Object> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto node = objects_.extract(handle);
    return node.empty() ? nullptr : std::move(node.mapped());
  }
  std::vector<std::shared_ptr<Object>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Object>> found;
    for (const auto& [handle, object] : objects_) found.push_back(object);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Handle, std::shared_ptr<Object>> objects_;
};

struct Module {
  std::string ptx;
};

struct Pool {
  int device;
  Grant grant;
};

/// Memory of cuMemCreate.
struct Allocation {
  std::shared_ptr<Memory> memory;
  bool exportable;
};

/// All that the driver holds in this process between cuInit and exit.
class Driver {
 public:
  explicit Driver(Machine& described);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  Machine& machine;
  Simulation simulation;
  Timeline timeline;
  std::vector<std::unique_ptr<Context>> contexts;  ///< by device
  Handles<Stream, CUstream> streams;
  Handles<Event, CUevent> events;
  Handles<Graph, CUgraph> graphs;
  Handles<Graph, CUgraphExec> executables;
  Handles<Module, CUmodule> modules;
  Handles<Module, CUlinkState> links;
  Handles<Pool, CUmemoryPool> pools;
  Handles<Allocation, CUmemGenericAllocationHandle> allocations;
  std::shared_ptr<Memory> host_first;  ///< see Machine::host_aliased

  bool has(CUdevice device) const { return device >= 0 && device < machine.count(); }
  Context* context(CUcontext handle) const;
  CUcontext handle(CUdevice device) const;
  std::shared_ptr<Stream> new_stream(Context& context);
  /// Of a handle; the null stream is the one of `context`.
  std::shared_ptr<Stream> stream(Context& context, CUstream handle);
  void drain(const Context& context);
  void drain_all();

  void keep(const std::shared_ptr<Arena>& reservation);
  std::shared_ptr<Arena> reservation(u64 begin, u64 bytes) const;  ///< that holds these addresses; may be null
  bool drop(u64 begin);                                            ///< the reservation that begins there

 private:
  mutable std::mutex mutex_;
  u64 next_stream_ = 0;
  std::vector<std::shared_ptr<Stream>> null_streams_;  ///< by device; made when first used
  std::map<u64, std::shared_ptr<Arena>> reservations_;
};

/// Null before cuInit, and in a process that was forked after it.
Driver* driver();
/// The current context of this thread; may be null.
Context*& current();

/// `call` with the driver, once there is one.
template <class Call>
CUresult with_driver(Call call) {
  Driver* const running = driver();
  return running == nullptr ? kNotInitialized : call(*running);
}

/// `call` with the driver and the current context, unless that has failed before.
template <class Call>
CUresult in_context(Call call) {
  Driver* const running = driver();
  if (running == nullptr) return kNotInitialized;
  if (current() == nullptr) return kInvalidContext;
  const CUresult error = current()->error;
  return error != CUDA_SUCCESS ? error : call(*running, *current());
}

// Memory, shared by the files that hand it out.

/// Free memory of a device.
u64 free_bytes(Driver& here, int device);
/// Null when a device has not that much left.
std::shared_ptr<Memory> take_memory(Driver& here, int device, u64 bytes);
/// Maps all of `memory` at a new address; null memory is "out of memory".
CUresult map_anywhere(Driver& here, const std::shared_ptr<Memory>& memory, const Grant& grant, CUdeviceptr* pointer);
/// Ends the mapping that begins at `pointer`.
CUresult unmap(Driver& here, u64 pointer);

// The functions that cuGetProcAddress gives.
#define F(name, ...) CUresult name(__VA_ARGS__);
P2PD_CUDA_FUNCTIONS(F)
#undef F

}  // namespace p2pd::sim
