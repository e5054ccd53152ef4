// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "tests/sim/liar/lies.hpp"

namespace p2pd::liar {

constexpr int kOtherProcess = -2;  ///< the device of memory that another process owns

/// Memory at one address.
struct Block {
  CUdeviceptr begin = 0;
  u64 bytes = 0;
  int device = -1;
};

/// Access of a kernel of kernels.cu to the memory that one of its parameters points to.
enum class Use { none, reads, writes };
struct KernelRow {
  const char* name;
  int parameters;
  Use first;   ///< through parameter 0
  Use second;  ///< through parameter 1
};

/// Two copies that precede each launch of a graph: `held` to `to`, then `from` to `held`.
struct Copied {
  CUdeviceptr to = 0;
  CUdeviceptr held = 0;
  CUdeviceptr from = 0;
  u64 bytes = 0;  ///< 0: none
};

/// Objects of the driver, and the devices that they belong to.
class Tracked {
 public:
  void context(CUcontext context, int device);
  void stream(CUstream stream, int device);
  void event(CUevent event, int device);  ///< recorded on a stream of this device
  void function(CUfunction function, const char* name);
  void handle(CUmemGenericAllocationHandle handle, u64 bytes, int device);
  void pool(CUmemoryPool pool, int device);
  void block(CUdeviceptr begin, u64 bytes, int device);
  void drop_block(CUdeviceptr begin);

  CUcontext context_of(int device) const;  ///< null: not opened
  int device_of(CUcontext context) const;
  int device_of(CUstream stream) const;  ///< of the current context, if the stream is not known
  int device_of(CUevent event) const;
  int device_of(CUmemoryPool pool) const;
  std::optional<Block> of_handle(CUmemGenericAllocationHandle handle) const;  ///< `begin` is 0
  const KernelRow* kernel(CUfunction function) const;
  std::optional<Block> find(CUdeviceptr pointer) const;
  std::optional<Block> largest(int device) const;

  /// The stream's cuStreamSynchronize must not return.
  void stall(CUstream stream);
  bool stalled(CUstream stream) const;
  /// The stream captures, or has captured, a graph; the copy before its launches.
  void captured(CUstream stream, Copied copied);
  std::optional<Copied> capturing(CUstream stream) const;
  /// A stream of A or B waits for the other, from now on or no longer; if it did before.
  bool waits(CUstream stream, bool from_now);

 private:
  template <class Map, class Key>
  int look_up(const Map& map, Key key, int otherwise) const;

  mutable std::mutex mutex_;
  std::map<CUcontext, int> contexts_;
  std::map<CUstream, int> streams_;
  std::map<CUevent, int> events_;
  std::map<CUmemoryPool, int> pools_;
  std::map<CUfunction, const KernelRow*> functions_;
  std::map<CUmemGenericAllocationHandle, Block> handles_;
  std::map<CUdeviceptr, Block> blocks_;
  std::map<CUstream, Copied> captured_;
  std::set<CUstream> stalled_;
  std::set<CUstream> waiting_;
};

/// Those of this process; never destroyed, since threads may outlive static objects.
Tracked& tracked();

}  // namespace p2pd::liar
