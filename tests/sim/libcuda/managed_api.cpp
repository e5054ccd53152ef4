// SPDX-License-Identifier: MIT
// Managed memory: all of an allocation is in one place, and migrates on access and prefetch.
#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

/// `call` with the range of managed memory that holds these bytes.
template <class Call>
CUresult on_managed(const Driver& here, CUdeviceptr pointer, std::size_t bytes, Call call) {
  const auto range = here.simulation.space.find(pointer);
  const bool fits = range && range->managed != nullptr && bytes != 0 && bytes <= range->end() - pointer;
  return fits ? call(*range) : CUDA_ERROR_INVALID_VALUE;
}

bool is_place(const Driver& here, CUdevice device) { return device == kHost || here.has(device); }

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  return in_context([&](Driver& here, const Context& context) {
    if (!here.machine.device(context.device).managed) return CUDA_ERROR_NOT_SUPPORTED;
    if (bytes == 0 || flags != CU_MEM_ATTACH_GLOBAL) return CUDA_ERROR_INVALID_VALUE;
    const auto arena = std::make_shared<Arena>(round_up(bytes, kPage), false);
    const bool mapped = arena->region.valid() && here.simulation.space.map(arena, 0, arena->region.bytes(), nullptr, 0,
                                                                           nullptr, std::make_shared<Managed>());
    if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = arena->region.address();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAdvise(CUdeviceptr pointer, std::size_t bytes, CUmem_advise advice, CUdevice device) {
  return in_context([&](const Driver& here, const Context&) {
    return on_managed(here, pointer, bytes, [&](const Range& range) {
      if (!is_place(here, device)) return CUDA_ERROR_INVALID_DEVICE;
      const std::lock_guard lock(range.managed->mutex);
      if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        range.managed->preferred = device;
      else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY && device != kHost)
        range.managed->accessed_by |= 1ULL << device;
      else
        return CUDA_ERROR_INVALID_VALUE;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, std::size_t bytes, CUdevice to, CUstream handle) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr) return kInvalidHandle;
    return on_managed(here, pointer, bytes, [&](const Range& range) {
      if (!is_place(here, to)) return CUDA_ERROR_INVALID_DEVICE;
      stream->submit(price(here.machine, range.device, to, range.bytes, Engine::copy),
                     [pointer, to](Operation& gpu) { gpu.prefetch(pointer, to); });
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace p2pd::sim
