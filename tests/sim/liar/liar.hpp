// SPDX-License-Identifier: MIT
// The functions that do more than forward, by the file that has them.
#pragma once

#include "tests/sim/liar/real.hpp"
#include "tests/sim/liar/tracked.hpp"

namespace p2pd::liar {

/// Memory of the liar's own, `bytes` on a device, every word `value`; made once for each set of arguments, kept until
/// the process ends. 0: there is no room.
CUdeviceptr own_memory(int device, u64 bytes, unsigned value);

// copies.cpp
CUresult copy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
/// Kernels of GPU `device` may have changed what copies bring.
void forget_last_copy(int device);

// kernels.cpp
CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                void** extra);
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult graph_launch(CUgraphExec executable, CUstream stream);
CUresult module_function(CUfunction* function, CUmodule module, const char* name);

// order.cpp: contexts, streams, events
CUresult init(unsigned flags);
CUresult context_retain(CUcontext* context, CUdevice device);
CUresult context_current(CUcontext context);
CUresult stream_create(CUstream* stream, unsigned flags);
CUresult stream_synchronize(CUstream stream);
CUresult stream_wait(CUstream stream, CUevent event, unsigned flags);
CUresult event_record(CUevent event, CUstream stream);
CUresult event_elapsed(float* milliseconds, CUevent from, CUevent to);

// memory.cpp: allocations, peer access, and memory shared with other processes
CUresult can_access(int* can, CUdevice device, CUdevice peer);
CUresult p2p_attribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to);
CUresult enable_peer(CUcontext peer, unsigned flags);
CUresult disable_peer(CUcontext peer);
CUresult allocate(CUdeviceptr* pointer, std::size_t bytes);
CUresult release(CUdeviceptr pointer);
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags);
CUresult map(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags);
CUresult unmap(CUdeviceptr pointer, std::size_t bytes);
CUresult set_access(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* descriptions, std::size_t count);
CUresult export_handle(void* handle, CUmemGenericAllocationHandle allocation, CUmemAllocationHandleType type,
                       unsigned long long flags);
CUresult pool_create(CUmemoryPool* pool, const CUmemPoolProps* properties);
CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc* descriptions, std::size_t count);
CUresult pool_allocate(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult pool_free(CUdeviceptr pointer, CUstream stream);
CUresult ipc_handle(CUipcMemHandle* handle, CUdeviceptr pointer);
CUresult ipc_open(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags);
CUresult ipc_close(CUdeviceptr pointer);

}  // namespace p2pd::liar
