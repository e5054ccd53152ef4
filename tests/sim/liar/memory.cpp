// SPDX-License-Identifier: MIT
// Allocations, peer access, and memory that is shared with other processes.

#include "tests/sim/liar/liar.hpp"

namespace p2pd::liar {

namespace {

constexpr u64 kFar = 1ULL << 40;  // the length of memory of another process is not known

bool lied_about(Lie lie, int accessor, int owner) { return is(lie) && accessor == told().from && owner == told().to; }

/// Checks that the lie claims access to mapped memory, or a pool, of `owner`.
bool claimed(Lie lie, int owner, const CUmemAccessDesc* descriptions, std::size_t count) {
  if (count != 1) return false;
  const int accessor = descriptions->location.id;
  return lied_about(lie, accessor, owner) || lied_about(Lie::claims_peers, accessor, owner);
}

/// Mapped memory like this, with a file descriptor of its own.
CUresult export_another(int* descriptor, const Block& like) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, like.device};
  CUmemGenericAllocationHandle other = 0;
  const CUresult made = real().cuMemCreate(&other, like.bytes, &properties, 0);
  if (made != CUDA_SUCCESS) return made;
  return real().cuMemExportToShareableHandle(descriptor, other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

}  // namespace

// ---- peer access ---------------------------------------------------------------------------------------------------

CUresult can_access(int* can, CUdevice device, CUdevice peer) {
  const CUresult result = real().cuDeviceCanAccessPeer(can, device, peer);
  if (result == CUDA_SUCCESS && lied_about(Lie::claims_peers, device, peer)) *can = 1;
  return result;
}

CUresult p2p_attribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  const CUresult result = real().cuDeviceGetP2PAttribute(value, attribute, from, to);
  const bool of_access = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  if (result == CUDA_SUCCESS && of_access && lied_about(Lie::claims_peers, from, to)) *value = 1;
  return result;
}

CUresult enable_peer(CUcontext peer, unsigned flags) {
  if (lied_about(Lie::claims_peers, here, tracked().device_of(peer))) return CUDA_SUCCESS;
  return Forward<&Functions::cuCtxEnablePeerAccess>::in_context(peer, flags);
}

CUresult disable_peer(CUcontext peer) {
  if (lied_about(Lie::claims_peers, here, tracked().device_of(peer))) return CUDA_SUCCESS;
  return Forward<&Functions::cuCtxDisablePeerAccess>::in_context(peer);
}

// ---- allocations ---------------------------------------------------------------------------------------------------

CUresult allocate(CUdeviceptr* pointer, std::size_t bytes) {
  const CUresult result = Forward<&Functions::cuMemAlloc>::in_context(pointer, bytes);
  if (result == CUDA_SUCCESS) tracked().block(*pointer, bytes, here);
  return result;
}

CUresult release(CUdeviceptr pointer) {
  tracked().drop_block(pointer);
  return Forward<&Functions::cuMemFree>::in_context(pointer);
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) {
  const CUresult result = Forward<&Functions::cuMemCreate>::in_context(handle, bytes, properties, flags);
  if (result == CUDA_SUCCESS) tracked().handle(*handle, bytes, properties->location.id);
  return result;
}

CUresult map(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  const CUresult result = Forward<&Functions::cuMemMap>::in_context(pointer, bytes, offset, handle, flags);
  const auto memory = tracked().of_handle(handle);
  if (result == CUDA_SUCCESS) tracked().block(pointer, bytes, memory ? memory->device : kOtherProcess);
  return result;
}

CUresult unmap(CUdeviceptr pointer, std::size_t bytes) {
  tracked().drop_block(pointer);
  return Forward<&Functions::cuMemUnmap>::in_context(pointer, bytes);
}

CUresult set_access(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* descriptions, std::size_t count) {
  const auto block = tracked().find(pointer);
  if (block && claimed(Lie::vmm_claims, block->device, descriptions, count)) return CUDA_SUCCESS;
  return Forward<&Functions::cuMemSetAccess>::in_context(pointer, bytes, descriptions, count);
}

CUresult pool_create(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = Forward<&Functions::cuMemPoolCreate>::in_context(pool, properties);
  if (result == CUDA_SUCCESS) tracked().pool(*pool, properties->location.id);
  return result;
}

CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc* descriptions, std::size_t count) {
  if (claimed(Lie::pool_claims, tracked().device_of(pool), descriptions, count)) return CUDA_SUCCESS;
  return Forward<&Functions::cuMemPoolSetAccess>::in_context(pool, descriptions, count);
}

CUresult pool_allocate(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  const CUresult result = Forward<&Functions::cuMemAllocFromPoolAsync>::in_context(pointer, bytes, pool, stream);
  if (result == CUDA_SUCCESS) tracked().block(*pointer, bytes, tracked().device_of(pool));
  return result;
}

CUresult pool_free(CUdeviceptr pointer, CUstream stream) {
  tracked().drop_block(pointer);
  return Forward<&Functions::cuMemFreeAsync>::in_context(pointer, stream);
}

// ---- other processes -----------------------------------------------------------------------------------------------

CUresult export_handle(void* handle, CUmemGenericAllocationHandle allocation, CUmemAllocationHandleType type,
                       unsigned long long flags) {
  const auto memory = tracked().of_handle(allocation);
  if (is(Lie::vmm_other) && memory && memory->device == told().to)
    return export_another(static_cast<int*>(handle), *memory);
  return Forward<&Functions::cuMemExportToShareableHandle>::in_context(handle, allocation, type, flags);
}

CUresult ipc_handle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  const auto block = tracked().find(pointer);
  if (is(Lie::ipc_other) && block && block->device == told().to)
    if (const CUdeviceptr other = own_memory(told().to, block->bytes, 0); other != 0) pointer = other;
  return Forward<&Functions::cuIpcGetMemHandle>::in_context(handle, pointer);
}

CUresult ipc_open(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  const CUresult result = Forward<&Functions::cuIpcOpenMemHandle>::in_context(pointer, handle, flags);
  if (result == CUDA_SUCCESS) tracked().block(*pointer, kFar, kOtherProcess);
  return result;
}

CUresult ipc_close(CUdeviceptr pointer) {
  tracked().drop_block(pointer);
  return Forward<&Functions::cuIpcCloseMemHandle>::in_context(pointer);
}

}  // namespace p2pd::liar
