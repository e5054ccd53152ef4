// SPDX-License-Identifier: MIT
#include "probes/bench/device/mapped.hpp"

namespace p2pd::bench {

using namespace cuda;

Result<Mapped> Mapped::create(const Driver& driver, CUmemLocation where, u64 bytes, const std::vector<CUdevice>& users,
                              Kind kind) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes =
      kind == Kind::shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  if (kind == Kind::compressible) properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  properties.location = where;
  std::size_t unit = 0;
  CU(driver, cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  bytes = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  CU(driver, cuMemCreate(&handle, bytes, &properties, 0));
  Mapped memory(driver, handle, bytes);
  if (kind == Kind::compressible) {
    CU(driver, cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    if (properties.allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_GENERIC)
      return fail(ErrorCode::invalid, "not supported: the driver gives memory that is not compressed");
  }
  TRY(memory.map());
  for (const CUdevice user : users) TRY(memory.grant(user));
  return memory;
}

Result<Mapped> Mapped::import(const Driver& driver, int descriptor, u64 bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* const as_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  CU(driver, cuMemImportFromShareableHandle(&handle, as_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  Mapped memory(driver, handle, bytes);
  TRY(memory.map());
  return memory;
}

Result<void> Mapped::map() {
  const Driver& driver = *driver_;
  CU(driver, cuMemAddressReserve(&address_, bytes_, 0, 0, 0));
  free_ = Cleanup([&driver, at = address_, bytes = bytes_] { driver->cuMemAddressFree(at, bytes); });
  CU(driver, cuMemMap(address_, bytes_, 0, handle_, 0));
  unmap_ = Cleanup([&driver, at = address_, bytes = bytes_] { driver->cuMemUnmap(at, bytes); });
  return {};
}

Result<void> Mapped::grant(CUdevice reader_and_writer) const {
  const CUmemAccessDesc access = access_by(reader_and_writer);
  CU(*driver_, cuMemSetAccess(address_, bytes_, &access, 1));
  return {};
}

Result<Descriptor> Mapped::share() const {
  int descriptor = -1;
  CU(*driver_, cuMemExportToShareableHandle(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return Descriptor(descriptor);
}

bool device_has(const Driver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

CUmemLocation memory_of(CUdevice device) { return {CU_MEM_LOCATION_TYPE_DEVICE, device}; }

CUmemLocation host_memory_of(int node) { return {CU_MEM_LOCATION_TYPE_HOST_NUMA, node}; }

CUmemAccessDesc access_by(CUdevice device) { return {memory_of(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}; }

}  // namespace p2pd::bench
