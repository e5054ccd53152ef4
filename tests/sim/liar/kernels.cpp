// SPDX-License-Identifier: MIT
// Lies about kernels. Their code is opaque: the pointers in their arguments show whose memory they access.
#include <algorithm>
#include <array>
#include <set>

#include "tests/sim/liar/liar.hpp"

namespace p2pd::liar {

namespace {

constexpr u64 kShift = 4096;
constexpr std::size_t kMostParameters = 10;

/// A launch, with parameters that can be changed.
class Launch {
 public:
  Launch(const KernelRow& row, CUstream stream, void** parameters) : row_(row), device_(tracked().device_of(stream)) {
    for (int i = 0; i < row.parameters; ++i) changed_[static_cast<std::size_t>(i)] = parameters[i];
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      if (use(i) == Use::none) continue;
      pointers_[i] = *static_cast<CUdeviceptr*>(parameters[i]);
      blocks_[i] = tracked().find(pointers_[i]);
      changed_[i] = &pointers_[i];
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// The number of the pointer that A stores through to B's memory; -1: none.
  int stores() const { return device_ == told().from ? pointer(Use::writes, told().to) : -1; }
  /// The number of the pointer that B loads through from A's memory.
  int loads() const { return device_ == told().to ? pointer(Use::reads, told().from) : -1; }
  bool stores_to_other_process() const { return device_ == told().from && pointer(Use::writes, kOtherProcess) >= 0; }
  /// The pointer that A loads through from B's memory.
  int loads_back() const { return device_ == told().from ? pointer(Use::reads, told().to) : -1; }

  CUdeviceptr& at(int number) { return pointers_[static_cast<std::size_t>(number)]; }
  const Block& block(int number) const { return *blocks_[static_cast<std::size_t>(number)]; }
  /// The same offset in other memory, if there is any.
  void move(int number, CUdeviceptr base) {
    if (base != 0) at(number) += base - block(number).begin;
  }
  void** parameters() { return changed_.data(); }

 private:
  Use use(std::size_t number) const { return number == 0 ? row_.first : row_.second; }
  int pointer(Use wanted, int owner) const {
    for (std::size_t i = 0; i < pointers_.size(); ++i)
      if (use(i) == wanted && blocks_[i] && blocks_[i]->device == owner) return static_cast<int>(i);
    return -1;
  }

  const KernelRow& row_;
  int device_;
  std::array<void*, kMostParameters> changed_{};
  std::array<CUdeviceptr, 2> pointers_{};
  std::array<std::optional<Block>, 2> blocks_{};
};

bool is_handshake(const KernelRow& row) { return row.first == Use::none; }

/// Stores to B land in A, and loads of A that begin at the same place find them there.
void mirror(Launch& launch, const KernelRow& row) {
  static std::mutex mutex;
  static std::set<CUdeviceptr> stored;
  const int stores = launch.stores();
  const int number = stores >= 0 ? stores : launch.loads_back();
  if (number < 0 || is_handshake(row)) return;
  const std::lock_guard lock(mutex);
  if (stores >= 0) stored.insert(launch.at(number));
  if (stored.contains(launch.at(number))) launch.move(number, own_memory(told().from, launch.block(number).bytes, 0));
}

void misread(Launch& launch) {
  const int number = launch.loads();
  if (number < 0) return;
  if (!is(Lie::own_memory))
    return launch.move(number, own_memory(told().to, launch.block(number).bytes, is(Lie::ones_reads) ? ~0U : 0U));
  const auto own = tracked().largest(told().to);
  if (own && own->bytes >= launch.block(number).bytes) launch.move(number, own->begin);
}

/// Loads of B, each time that its graph is launched, find what A's memory held at the launch before: at this one, A may
/// already be ahead.
void read_old(Launch& launch, CUstream stream) {
  constexpr u64 kMost = 1ULL << 20;
  const int number = launch.loads();
  if (number < 0) return;
  const CUdeviceptr from = launch.at(number);
  launch.move(number, own_memory(told().to, launch.block(number).bytes, 0));
  const Block& block = launch.block(number);
  const CUdeviceptr held = own_memory(told().to, block.bytes, ~0U) + (from - block.begin);
  tracked().captured(stream, {launch.at(number), held, from, std::min(kMost, block.begin + block.bytes - from)});
}

/// Changes the launch; false: it must not run.
bool lie_about(Launch& launch, const KernelRow& row, CUstream stream) {
  const int stores = launch.stores();
  switch (told().lie) {
    case Lie::drop_stores: return stores < 0;
    case Lie::mirror_stores: mirror(launch, row); break;
    case Lie::shifted_stores:
      if (stores >= 0 && !is_handshake(row) && launch.at(stores) - launch.block(stores).begin >= kShift)
        launch.at(stores) -= kShift;
      break;
    case Lie::own_memory:
    case Lie::zero_reads:
    case Lie::ones_reads: misread(launch); break;
    case Lie::graph_no_flag:
      if (stores >= 0 && tracked().capturing(stream))
        launch.move(stores, own_memory(told().from, launch.block(stores).bytes, 0));
      break;
    case Lie::graph_old_data:
      if (tracked().capturing(stream)) read_old(launch, stream);
      break;
    case Lie::stall_store:
      if (stores >= 0) tracked().stall(stream);
      break;
    case Lie::stall_load:
      if (launch.loads() >= 0) tracked().stall(stream);
      break;
    default: break;
  }
  return true;
}

/// The context that this launch is said to have cost its GPU; -1: none.
int fails(const Launch& launch) {
  if (is(Lie::store_fault) && launch.stores() >= 0) return told().from;
  if (is(Lie::load_fault) && launch.loads() >= 0) return told().to;
  if (is(Lie::ipc_fault) && launch.stores_to_other_process()) return told().from;
  return -1;
}

}  // namespace

CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                void** extra) {
  if (context_failed(here)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto forward = [&](void** given) {
    return real().cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                                 given, extra);
  };
  forget_last_copy(tracked().device_of(stream));
  const KernelRow* const row = tracked().kernel(function);
  if (row == nullptr || parameters == nullptr || is(Lie::none)) return forward(parameters);
  Launch launch(*row, stream, parameters);
  const int failing = fails(launch);
  if (!lie_about(launch, *row, stream)) return CUDA_SUCCESS;
  const CUresult result = forward(launch.parameters());
  fail_context(failing);
  return result;
}

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode) {
  tracked().captured(stream, Copied{});
  // while a stream captures, no memory may be allocated
  const auto from = tracked().largest(told().from);
  const auto to = tracked().largest(told().to);
  if (to && (is(Lie::graph_no_flag) || is(Lie::mirror_stores))) own_memory(told().from, to->bytes, 0);
  if (from && (is(Lie::graph_old_data) || is(Lie::zero_reads))) own_memory(told().to, from->bytes, 0);
  if (from && (is(Lie::graph_old_data) || is(Lie::ones_reads))) own_memory(told().to, from->bytes, ~0U);
  return Forward<&Functions::cuStreamBeginCapture>::in_context(stream, mode);
}

CUresult graph_launch(CUgraphExec executable, CUstream stream) {
  const auto copied = tracked().capturing(stream);
  if (copied && copied->bytes > 0) {
    real().cuMemcpyAsync(copied->to, copied->held, copied->bytes, stream);
    real().cuMemcpyAsync(copied->held, copied->from, copied->bytes, stream);
  }
  return Forward<&Functions::cuGraphLaunch>::in_context(executable, stream);
}

CUresult module_function(CUfunction* function, CUmodule module, const char* name) {
  const CUresult result = Forward<&Functions::cuModuleGetFunction>::in_context(function, module, name);
  if (result == CUDA_SUCCESS) tracked().function(*function, name);
  return result;
}

}  // namespace p2pd::liar
