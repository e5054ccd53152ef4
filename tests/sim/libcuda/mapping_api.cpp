// SPDX-License-Identifier: MIT
// Memory that is mapped by hand (virtual memory management), and pools: both have access rights of their own.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

/// Sets or clears the bits of `grant` as the descriptions say, or returns the error.
CUresult set_access(Driver& here, int owner, std::atomic<u64>& grant, const CUmemAccessDesc* descriptions,
                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const int device = descriptions[i].location.id;
    if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !here.has(device))
      return CUDA_ERROR_INVALID_DEVICE;
    if (owner != kHost && device != owner && !here.machine.can_access(device, owner))
      return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      grant |= 1ULL << device;
    else
      grant &= ~(1ULL << device);
  }
  return CUDA_SUCCESS;
}

/// Checks that this is host memory of the only NUMA node.
bool host_node(const CUmemLocation& where) { return where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && where.id == 0; }

std::shared_ptr<Memory> take_host_memory(Driver& here, u64 bytes) {
  if (bytes > here.machine.host_bytes - here.simulation.host_used) return nullptr;
  if (here.machine.host_aliased && here.host_first != nullptr) return here.host_first;
  auto memory = Memory::create(kHost, bytes, &here.simulation.host_used);
  if (here.machine.host_aliased) here.host_first = memory;
  return memory;
}

}  // namespace

void Driver::keep(const std::shared_ptr<Arena>& reservation) {
  const std::lock_guard lock(mutex_);
  reservations_[reservation->region.address()] = reservation;
}

std::shared_ptr<Arena> Driver::reservation(u64 begin, u64 bytes) const {
  const std::lock_guard lock(mutex_);
  auto next = reservations_.upper_bound(begin);
  if (next == reservations_.begin()) return nullptr;
  const auto& [address, arena] = *std::prev(next);
  const u64 offset = begin - address;
  return offset < arena->region.bytes() && bytes <= arena->region.bytes() - offset ? arena : nullptr;
}

bool Driver::drop(u64 begin) {
  const std::lock_guard lock(mutex_);
  return reservations_.erase(begin) != 0;
}

// ---- virtual memory management -------------------------------------------------------------------------------------

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return with_driver([&](const Driver& here) {
    if (!host_node(properties->location) && !here.has(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return with_driver([&](Driver& here) {
    const bool fits = bytes != 0 && bytes % kGranularity == 0 && flags == 0 &&
                      properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                      (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE || host_node(properties->location));
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    const bool host = host_node(properties->location);
    if (!host && !here.has(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    auto memory = host ? take_host_memory(here, bytes) : take_memory(here, properties->location.id, bytes);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->compressible = properties->allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_GENERIC && !host &&
                           here.machine.device(properties->location.id).compressible;
    const bool exportable = properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    *handle = here.allocations.add(std::make_shared<Allocation>(Allocation{std::move(memory), exportable}));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& here) {
    const auto found = here.allocations.find(handle);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, found->memory->device()};
    properties->allocFlags.compressionType = found->memory->compressible ? CU_MEM_ALLOCATION_COMP_GENERIC : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver(
      [&](Driver& here) { return here.allocations.take(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; });
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return with_driver([&](Driver& here) {
    if (bytes == 0 || bytes % kGranularity != 0 || alignment > kGranularity || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const auto arena = std::make_shared<Arena>(bytes, true);
    if (!arena->region.valid()) return CUDA_ERROR_OUT_OF_MEMORY;
    here.keep(arena);
    *pointer = arena->region.address();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  return with_driver([&](Driver& here) {
    const auto arena = here.reservation(pointer, bytes);
    const bool whole = arena != nullptr && arena->region.address() == pointer && arena->region.bytes() == bytes;
    return whole && here.drop(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_driver([&](Driver& here) {
    const auto allocation = here.allocations.find(handle);
    const auto arena = here.reservation(pointer, bytes);
    const bool fits = allocation != nullptr && arena != nullptr && bytes != 0 && flags == 0 &&
                      (pointer | bytes | offset) % kGranularity == 0 && offset <= allocation->memory->bytes() &&
                      bytes <= allocation->memory->bytes() - offset;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    for (u64 at = pointer; at < pointer + bytes; at += kGranularity)
      if (here.simulation.space.find(at)) return CUDA_ERROR_INVALID_VALUE;
    const auto grant = std::make_shared<std::atomic<u64>>(0);
    const u64 start = pointer - arena->region.address();
    return here.simulation.space.map(arena, start, bytes, allocation->memory, offset, grant) ? CUDA_SUCCESS
                                                                                             : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  return with_driver([&](Driver& here) {
    const std::vector<Range> ranges = here.simulation.space.cover(pointer, bytes);
    const bool whole = !ranges.empty() && ranges.front().arena->holes && ranges.front().begin == pointer &&
                       ranges.back().end() == pointer + bytes;
    if (!whole) return CUDA_ERROR_INVALID_VALUE;
    here.drain_all();
    for (const Range& range : ranges) unmap(here, range.begin);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* descriptions,
                        std::size_t count) {
  return with_driver([&](Driver& here) {
    const std::vector<Range> ranges = here.simulation.space.cover(pointer, bytes);
    if (ranges.empty() || !ranges.front().arena->holes) return CUDA_ERROR_INVALID_VALUE;
    for (const Range& range : ranges) {
      const CUresult result = set_access(here, range.device, *range.grant, descriptions, count);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* handle, CUmemGenericAllocationHandle allocation,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return with_driver([&](const Driver& here) {
    const auto found = here.allocations.find(allocation);
    if (found == nullptr || !found->exportable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(found->memory->fd(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memcpy(handle, &fd, sizeof(fd));
    return CUDA_SUCCESS;
  });
}

/// The descriptor stays the caller's.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* allocation, void* handle,
                                        CUmemAllocationHandleType type) {
  return with_driver([&](Driver& here) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int fd = ::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)), F_DUPFD_CLOEXEC, 0);
    auto memory = fd < 0 ? nullptr : Memory::adopt(fd);
    if (memory == nullptr || !here.has(memory->device())) return CUDA_ERROR_INVALID_VALUE;
    *allocation = here.allocations.add(std::make_shared<Allocation>(Allocation{std::move(memory), true}));
    return CUDA_SUCCESS;
  });
}

// ---- pools ---------------------------------------------------------------------------------------------------------

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return with_driver([&](Driver& here) {
    const int device = properties->location.id;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      return CUDA_ERROR_INVALID_VALUE;
    if (!here.has(device)) return CUDA_ERROR_INVALID_DEVICE;
    auto grant = std::make_shared<std::atomic<u64>>(1ULL << device);
    *pool = here.pools.add(std::make_shared<Pool>(Pool{device, std::move(grant)}));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return with_driver([&](Driver& here) { return here.pools.take(pool) == nullptr ? kInvalidHandle : CUDA_SUCCESS; });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* descriptions, std::size_t count) {
  return with_driver([&](Driver& here) {
    const auto found = here.pools.find(pool);
    return found == nullptr ? kInvalidHandle : set_access(here, found->device, *found->grant, descriptions, count);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream) {
  return in_context([&](Driver& here, const Context&) {
    const auto found = here.pools.find(pool);
    if (found == nullptr) return kInvalidHandle;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return map_anywhere(here, take_memory(here, found->device, round_up(bytes, kPage)), found->grant, pointer);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  return in_context([&](Driver& here, Context& context) {
    const auto stream = here.stream(context, handle);
    if (stream == nullptr) return kInvalidHandle;
    if (!here.simulation.space.find(pointer)) return CUDA_ERROR_INVALID_VALUE;
    stream->submit({}, [&here, pointer](Operation&) { unmap(here, pointer); });
    return CUDA_SUCCESS;
  });
}

}  // namespace p2pd::sim
