// SPDX-License-Identifier: MIT
// Part of the CUDA driver API that p2p-bench uses, declared here so that no toolkit is needed to build. Names,
// values and layouts are those of cuda.h since CUDA 12.0 (a test compares them if a toolkit is installed).
#pragma once

#include <cstddef>
#include <cstdint>

namespace p2pd::bench::cuda {

// Every driver of the catalogue is newer; cuGetProcAddress provides this ABI, also in a driver of CUDA 13: cuMemAdvise
// and cuMemPrefetchAsync take a device, as before 12.2, and no CUmemLocation.
constexpr int kApiVersion = 12000;

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUlinkState = struct CUlinkState_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_TOO_MANY_PEERS = 711,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED = 107,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
};
enum CUcomputemode : int {
  CU_COMPUTEMODE_DEFAULT = 0,
  CU_COMPUTEMODE_PROHIBITED = 2,
  CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
};

enum CUdevice_P2PAttribute : int {
  CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1,
  CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2,
  CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3,
};

constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
constexpr unsigned CU_EVENT_DEFAULT = 0;
constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;
constexpr unsigned CU_MEM_ATTACH_GLOBAL = 1;
constexpr unsigned CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1;
constexpr unsigned char CU_MEM_ALLOCATION_COMP_GENERIC = 1;

enum CUstreamCaptureMode : int { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
enum CUjitInputType : int { CU_JIT_INPUT_PTX = 1 };
enum CUjit_option : int { CU_JIT_TARGET = 9 };

enum CUmem_advise : int { CU_MEM_ADVISE_SET_PREFERRED_LOCATION = 3, CU_MEM_ADVISE_SET_ACCESSED_BY = 5 };
enum CUmemAllocationType : int { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemAllocationHandleType : int { CU_MEM_HANDLE_TYPE_NONE = 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
enum CUmemLocationType : int { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST_NUMA = 3 };
enum CUmemAccess_flags : int { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum CUmemAllocationGranularity_flags : int { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };

struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned char reserved[56];
};

/// Every function used: F(name, parameters...). The simulated driver of the tests implements the same list.
#define P2PD_CUDA_FUNCTIONS(F)                                                                                      \
  F(cuInit, unsigned flags)                                                                                         \
  F(cuDriverGetVersion, int* version)                                                                               \
  F(cuGetErrorName, CUresult error, const char** text)                                                              \
  F(cuDeviceGetCount, int* count)                                                                                   \
  F(cuDeviceGet, CUdevice* device, int ordinal)                                                                     \
  F(cuDeviceGetName, char* name, int length, CUdevice device)                                                       \
  F(cuDeviceGetUuid, CUuuid* uuid, CUdevice device)                                                                 \
  F(cuDeviceGetPCIBusId, char* text, int length, CUdevice device)                                                   \
  F(cuDeviceGetAttribute, int* value, CUdevice_attribute attribute, CUdevice device)                                \
  F(cuDeviceCanAccessPeer, int* can, CUdevice device, CUdevice peer)                                                \
  F(cuDeviceGetP2PAttribute, int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)               \
  F(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)                                                  \
  F(cuDevicePrimaryCtxRelease, CUdevice device)                                                                     \
  F(cuCtxSetCurrent, CUcontext context)                                                                             \
  F(cuCtxSynchronize)                                                                                               \
  F(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags)                                                          \
  F(cuCtxDisablePeerAccess, CUcontext peer)                                                                         \
  F(cuMemGetInfo, std::size_t* free, std::size_t* total)                                                            \
  F(cuMemAlloc, CUdeviceptr* pointer, std::size_t bytes)                                                            \
  F(cuMemFree, CUdeviceptr pointer)                                                                                 \
  F(cuMemAllocManaged, CUdeviceptr* pointer, std::size_t bytes, unsigned flags)                                     \
  F(cuMemAdvise, CUdeviceptr pointer, std::size_t bytes, CUmem_advise advice, CUdevice device)                      \
  F(cuMemPrefetchAsync, CUdeviceptr pointer, std::size_t bytes, CUdevice to, CUstream stream)                       \
  F(cuMemHostAlloc, void** pointer, std::size_t bytes, unsigned flags)                                              \
  F(cuMemFreeHost, void* pointer)                                                                                   \
  F(cuMemcpyDtoH, void* to, CUdeviceptr from, std::size_t bytes)                                                    \
  F(cuMemcpyHtoD, CUdeviceptr to, const void* from, std::size_t bytes)                                              \
  F(cuMemcpyDtoHAsync, void* to, CUdeviceptr from, std::size_t bytes, CUstream stream)                              \
  F(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream)                            \
  F(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,              \
    std::size_t bytes, CUstream stream)                                                                             \
  F(cuMemsetD32Async, CUdeviceptr to, unsigned value, std::size_t words, CUstream stream)                           \
  F(cuStreamCreate, CUstream* stream, unsigned flags)                                                               \
  F(cuStreamDestroy, CUstream stream)                                                                               \
  F(cuStreamSynchronize, CUstream stream)                                                                           \
  F(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                                              \
  F(cuStreamBeginCapture, CUstream stream, CUstreamCaptureMode mode)                                                \
  F(cuStreamEndCapture, CUstream stream, CUgraph* graph)                                                            \
  F(cuGraphInstantiateWithFlags, CUgraphExec* executable, CUgraph graph, unsigned long long flags)                  \
  F(cuGraphDestroy, CUgraph graph)                                                                                  \
  F(cuGraphLaunch, CUgraphExec executable, CUstream stream)                                                         \
  F(cuGraphExecDestroy, CUgraphExec executable)                                                                     \
  F(cuEventCreate, CUevent* event, unsigned flags)                                                                  \
  F(cuEventDestroy, CUevent event)                                                                                  \
  F(cuEventRecord, CUevent event, CUstream stream)                                                                  \
  F(cuEventSynchronize, CUevent event)                                                                              \
  F(cuEventElapsedTime, float* milliseconds, CUevent from, CUevent to)                                              \
  F(cuModuleLoadData, CUmodule* module, const void* image)                                                          \
  F(cuModuleUnload, CUmodule module)                                                                                \
  F(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name)                                   \
  F(cuLinkCreate, unsigned options, CUjit_option* names, void** values, CUlinkState* state)                         \
  F(cuLinkAddData, CUlinkState state, CUjitInputType type, void* data, std::size_t bytes, const char* name,         \
    unsigned options, CUjit_option* names, void** values)                                                           \
  F(cuLinkComplete, CUlinkState state, void** cubin, std::size_t* bytes)                                            \
  F(cuLinkDestroy, CUlinkState state)                                                                               \
  F(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,       \
    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra)    \
  F(cuMemGetAllocationGranularity, std::size_t* bytes, const CUmemAllocationProp* properties,                       \
    CUmemAllocationGranularity_flags flags)                                                                         \
  F(cuMemCreate, CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,    \
    unsigned long long flags)                                                                                       \
  F(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle)   \
  F(cuMemRelease, CUmemGenericAllocationHandle handle)                                                              \
  F(cuMemAddressReserve, CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,        \
    unsigned long long flags)                                                                                       \
  F(cuMemAddressFree, CUdeviceptr pointer, std::size_t bytes)                                                       \
  F(cuMemMap, CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,      \
    unsigned long long flags)                                                                                       \
  F(cuMemUnmap, CUdeviceptr pointer, std::size_t bytes)                                                             \
  F(cuMemSetAccess, CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* descriptions, std::size_t count) \
  F(cuMemExportToShareableHandle, void* handle, CUmemGenericAllocationHandle allocation,                            \
    CUmemAllocationHandleType type, unsigned long long flags)                                                       \
  F(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle* allocation, void* handle,                         \
    CUmemAllocationHandleType type)                                                                                 \
  F(cuMemPoolCreate, CUmemoryPool* pool, const CUmemPoolProps* properties)                                          \
  F(cuMemPoolDestroy, CUmemoryPool pool)                                                                            \
  F(cuMemPoolSetAccess, CUmemoryPool pool, const CUmemAccessDesc* descriptions, std::size_t count)                  \
  F(cuMemAllocFromPoolAsync, CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream)           \
  F(cuMemFreeAsync, CUdeviceptr pointer, CUstream stream)                                                           \
  F(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr pointer)                                                 \
  F(cuIpcOpenMemHandle, CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags)                                \
  F(cuIpcCloseMemHandle, CUdeviceptr pointer)

/// Symbol that is looked up by name; all others come from it, in the ABI of kApiVersion.
using CuGetProcAddress = CUresult (*)(const char* symbol, void** function, int version, std::uint64_t flags,
                                      int* status);

/// Functions of the driver.
struct Functions {
#define F(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  P2PD_CUDA_FUNCTIONS(F)
#undef F
};

}  // namespace p2pd::bench::cuda
