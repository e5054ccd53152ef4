// SPDX-License-Identifier: MIT
// Devices and their primary contexts.
#include <bit>
#include <cstdio>

#include "tests/sim/libcuda/driver.hpp"

namespace p2pd::sim {

namespace {

CUresult copy_text(char* to, int length, const std::string& text) {
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(to, static_cast<std::size_t>(length), "%s", text.c_str());
  return CUDA_SUCCESS;
}

/// `call` with the model of a device.
template <class Call>
CUresult on_device(CUdevice device, Call call) {
  return with_driver([&](Driver& here) {
    return here.has(device) ? call(here, here.machine.device(device)) : CUDA_ERROR_INVALID_DEVICE;
  });
}

}  // namespace

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&](const Driver& here) {
    *count = here.machine.count();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return on_device(ordinal, [&](const Driver&, const DeviceModel&) {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return on_device(device,
                   [&](const Driver&, const DeviceModel& model) { return copy_text(name, length, model.name); });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return on_device(device, [&](const Driver&, const DeviceModel& model) {
    *uuid = model.uuid;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return on_device(device,
                   [&](const Driver&, const DeviceModel& model) { return copy_text(text, length, model.address); });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return on_device(device, [&](const Driver&, const DeviceModel& model) {
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = model.multiprocessors; break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = model.compute_mode; break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = model.major; break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = model.minor; break;
      case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: *value = 0; break;
      case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: *value = model.managed ? 1 : 0; break;
      case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: *value = model.compressible ? 1 : 0; break;
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return on_device(device, [&](Driver& here, const DeviceModel&) {
    if (!here.has(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = here.machine.can_access(device, peer) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  return on_device(from, [&](Driver& here, const DeviceModel& model) {
    if (!here.has(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
    const bool can = here.machine.can_access(from, to);
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = 0; break;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = can ? 1 : 0; break;
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = can && model.atomics && here.machine.device(to).atomics ? 1 : 0;
        break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

// ---- contexts ------------------------------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return on_device(device, [&](const Driver& here, const DeviceModel& model) {
    if (model.compute_mode == CU_COMPUTEMODE_PROHIBITED) return kUnavailable;
    *context = here.handle(device);
    ++here.context(*context)->users;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return on_device(device, [&](const Driver& here, const DeviceModel&) {
    Context& context = *here.context(here.handle(device));
    if (context.users == 0) return kInvalidContext;
    if (--context.users == 0) context.peers = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return with_driver([&](const Driver& here) {
    Context* const found = here.context(context);
    if (context != nullptr && found == nullptr) return kInvalidContext;
    current() = found;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return in_context([](Driver& here, const Context& context) {
    here.drain(context);
    return context.error.load();
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return in_context([&](Driver& here, Context& context) {
    constexpr int kMostPeers = 8;
    const Context* const other = here.context(peer);
    if (other == nullptr) return kInvalidContext;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!here.machine.can_access(context.device, other->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (const Fault* fault = here.machine.fault(Wrong::refuse, context.device, other->device)) return fault->error;
    const u64 bit = 1ULL << other->device;
    if ((context.peers & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (std::popcount(context.peers.load()) >= kMostPeers) return CUDA_ERROR_TOO_MANY_PEERS;
    if (here.machine.on_peer) here.machine.on_peer();
    context.peers |= bit;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return in_context([&](const Driver& here, Context& context) {
    const Context* const other = here.context(peer);
    if (other == nullptr) return kInvalidContext;
    const u64 bit = 1ULL << other->device;
    return (context.peers.fetch_and(~bit) & bit) != 0 ? CUDA_SUCCESS : kNotEnabled;
  });
}

}  // namespace p2pd::sim
