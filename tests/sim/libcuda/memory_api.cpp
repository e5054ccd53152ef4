// SPDX-License-Identifier: MIT
// Plain allocations, the host's memory, and the sharing of them with other processes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

/// Contents of an IPC handle, for a process that may read this one's /proc.
struct IpcHandle {
  char magic[8];
  pid_t process;
  int fd;
};
constexpr char kMagic[8] = "p2pdsim";
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

}  // namespace

u64 free_bytes(Driver& here, int device) {
  u64 left = here.machine.device(device).free_bytes;
  // "busy": another process has allocated `at` MiB, or half of it
  if (const Fault* busy = here.machine.fault(Wrong::busy, device, device)) {
    const u64 taken = busy->at != 0 ? busy->at << 20 : left / 2;
    left -= std::min(left, taken);
  }
  const u64 used = here.simulation.used[static_cast<std::size_t>(device)];
  return left - std::min(left, used);
}

std::shared_ptr<Memory> take_memory(Driver& here, int device, u64 bytes) {
  if (bytes > free_bytes(here, device)) return nullptr;
  return Memory::create(device, bytes, &here.simulation.used[static_cast<std::size_t>(device)]);
}

CUresult map_anywhere(Driver& here, const std::shared_ptr<Memory>& memory, const Grant& grant, CUdeviceptr* pointer) {
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto arena = std::make_shared<Arena>(memory->bytes(), false);
  if (!arena->region.valid() || !here.simulation.space.map(arena, 0, memory->bytes(), memory, 0, grant))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = arena->region.address();
  return CUDA_SUCCESS;
}

CUresult unmap(Driver& here, u64 pointer) {
  const auto range = here.simulation.space.unmap(pointer);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  here.simulation.late.forget(range->begin, range->bytes);
  return CUDA_SUCCESS;
}

// ---- plain allocations ---------------------------------------------------------------------------------------------

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return in_context([&](Driver& here, const Context& context) {
    *free = free_bytes(here, context.device);
    *total = here.machine.device(context.device).memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  return in_context([&](Driver& here, const Context& context) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return map_anywhere(here, take_memory(here, context.device, round_up(bytes, kPage)), nullptr, pointer);
  });
}

/// Waits for all devices first, as the real driver does.
CUresult cuMemFree(CUdeviceptr pointer) {
  return in_context([&](Driver& here, const Context&) {
    if (pointer == 0) return CUDA_SUCCESS;
    here.drain_all();
    return unmap(here, pointer);
  });
}

CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return in_context([&](Driver& here, const Context&) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto arena = std::make_shared<Arena>(round_up(bytes, kPage), false);
    if (!arena->region.valid() || !here.simulation.space.map(arena, 0, arena->region.bytes(), nullptr, 0, nullptr))
      return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = arena->region.begin();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFreeHost(void* pointer) { return cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)); }

// ---- other processes -----------------------------------------------------------------------------------------------

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  return in_context([&](const Driver& here, const Context&) {
    const auto range = here.simulation.space.find(pointer);
    const bool fits = range && range->memory != nullptr && range->grant == nullptr && range->begin == pointer;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    IpcHandle content{{}, ::getpid(), range->memory->fd()};
    std::memcpy(content.magic, kMagic, sizeof(kMagic));
    *handle = {};
    std::memcpy(handle, &content, sizeof(content));
    return CUDA_SUCCESS;
  });
}

/// The device that opens gets access to the owner's memory with it, which is what the only flag there is asks for.
CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return in_context([&](Driver& here, const Context& context) {
    IpcHandle content{};
    std::memcpy(&content, &handle, sizeof(content));
    const bool fits = std::memcmp(content.magic, kMagic, sizeof(kMagic)) == 0 && content.process != ::getpid() &&
                      flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    const std::string path = "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.fd);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const auto memory = fd < 0 ? nullptr : Memory::adopt(fd);
    if (memory == nullptr || !here.has(memory->device())) return CUDA_ERROR_INVALID_VALUE;
    const int owner = memory->device();
    if (const Fault* fault = here.machine.fault(Wrong::ipc, context.device, owner)) return fault->error;
    if (context.device != owner && !here.machine.can_access(context.device, owner))
      return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const auto grant = std::make_shared<std::atomic<u64>>(1ULL << context.device | 1ULL << owner);
    return map_anywhere(here, memory, grant, pointer);
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) { return cuMemFree(pointer); }

}  // namespace p2pd::sim
