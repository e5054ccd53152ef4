// SPDX-License-Identifier: MIT
#include "tests/sim/liar/tracked.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/sim/liar/real.hpp"

namespace p2pd::liar {

namespace {

/// A handshake also reads, but is counted where it stores: a lie about loads leaves it alone.
constexpr KernelRow kKernels[] = {
    {"verify", 6, Use::reads, Use::none},        {"store", 5, Use::writes, Use::none},
    {"copy", 3, Use::writes, Use::reads},        {"chase", 4, Use::reads, Use::none},
    {"handshake", 9, Use::none, Use::writes},    {"tag", 4, Use::writes, Use::none},
    {"check_tags", 5, Use::reads, Use::none},    {"contend", 4, Use::writes, Use::writes},
    {"all_reduce", 10, Use::reads, Use::writes},
};

}  // namespace

Tracked& tracked() {
  static Tracked* const all = new Tracked;
  return *all;
}

template <class Map, class Key>
int Tracked::look_up(const Map& map, Key key, int otherwise) const {
  const std::lock_guard lock(mutex_);
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

void Tracked::context(CUcontext context, int device) {
  const std::lock_guard lock(mutex_);
  contexts_[context] = device;
}

void Tracked::stream(CUstream stream, int device) {
  const std::lock_guard lock(mutex_);
  streams_[stream] = device;
}

void Tracked::event(CUevent event, int device) {
  const std::lock_guard lock(mutex_);
  events_[event] = device;
}

void Tracked::function(CUfunction function, const char* name) {
  const auto* const row =
      std::ranges::find_if(kKernels, [&](const KernelRow& r) { return std::string_view(r.name) == name; });
  if (row == std::end(kKernels)) return;
  const std::lock_guard lock(mutex_);
  functions_[function] = row;
}

void Tracked::handle(CUmemGenericAllocationHandle handle, u64 bytes, int device) {
  const std::lock_guard lock(mutex_);
  handles_[handle] = {0, bytes, device};
}

void Tracked::pool(CUmemoryPool pool, int device) {
  const std::lock_guard lock(mutex_);
  pools_[pool] = device;
}

void Tracked::block(CUdeviceptr begin, u64 bytes, int device) {
  const std::lock_guard lock(mutex_);
  blocks_[begin] = {begin, bytes, device};
}

void Tracked::drop_block(CUdeviceptr begin) {
  const std::lock_guard lock(mutex_);
  blocks_.erase(begin);
}

CUcontext Tracked::context_of(int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(contexts_, [&](const auto& pair) { return pair.second == device; });
  return found == contexts_.end() ? nullptr : found->first;
}

int Tracked::device_of(CUcontext context) const { return look_up(contexts_, context, -1); }
int Tracked::device_of(CUstream stream) const { return look_up(streams_, stream, here); }
int Tracked::device_of(CUevent event) const { return look_up(events_, event, -1); }
int Tracked::device_of(CUmemoryPool pool) const { return look_up(pools_, pool, -1); }

std::optional<Block> Tracked::of_handle(CUmemGenericAllocationHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? std::nullopt : std::optional(found->second);
}

const KernelRow* Tracked::kernel(CUfunction function) const {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(function);
  return found == functions_.end() ? nullptr : found->second;
}

std::optional<Block> Tracked::find(CUdeviceptr pointer) const {
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(pointer);
  if (next == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(next)->second;
  return pointer - block.begin < block.bytes ? std::optional(block) : std::nullopt;
}

std::optional<Block> Tracked::largest(int device) const {
  const std::lock_guard lock(mutex_);
  std::optional<Block> most;
  for (const auto& [begin, block] : blocks_)
    if (block.device == device && (!most || block.bytes > most->bytes)) most = block;
  return most;
}

void Tracked::stall(CUstream stream) {
  const std::lock_guard lock(mutex_);
  stalled_.insert(stream);
}

void Tracked::captured(CUstream stream, Copied copied) {
  const std::lock_guard lock(mutex_);
  captured_[stream] = copied;
}

std::optional<Copied> Tracked::capturing(CUstream stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = captured_.find(stream);
  return found == captured_.end() ? std::nullopt : std::optional(found->second);
}

bool Tracked::waits(CUstream stream, bool from_now) {
  const std::lock_guard lock(mutex_);
  const bool before = waiting_.erase(stream) != 0;
  if (from_now) waiting_.insert(stream);
  return before;
}

bool Tracked::stalled(CUstream stream) const {
  const std::lock_guard lock(mutex_);
  return stalled_.contains(stream);
}

}  // namespace p2pd::liar
