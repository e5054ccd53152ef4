// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "base/descriptor.hpp"
#include "probes/bench/device/driver.hpp"
#include "probes/bench/device/pattern.hpp"

namespace p2pd::bench {

/// Memory of one GPU, or of the host, from the virtual memory calls, mapped; freed with the object. Only GPUs to which
/// it was granted may access it.
class Mapped {
 public:
  enum class Kind {
    plain,
    shareable,     ///< share() may be called
    compressible,  ///< the GPU may compress what is in it
  };
  /// Rounds `bytes` up to the driver's allocation granularity, and grants it to `users`. An Error, too: the driver gave
  /// plain memory for compressible.
  static Result<Mapped> create(const Driver& driver, cuda::CUmemLocation where, u64 bytes,
                               const std::vector<cuda::CUdevice>& users, Kind kind = Kind::plain);
  /// Maps memory that another process shared; `bytes` as there.
  static Result<Mapped> import(const Driver& driver, int descriptor, u64 bytes);

  Result<void> grant(cuda::CUdevice reader_and_writer) const;
  Result<Descriptor> share() const;  ///< as a file descriptor, for another process

  cuda::CUdeviceptr address() const { return address_; }
  u64 bytes() const { return bytes_; }

 private:
  Mapped(const Driver& driver, cuda::CUmemGenericAllocationHandle handle, u64 bytes)
      : driver_(&driver),
        handle_(handle),
        bytes_(bytes),
        release_([&driver, handle] { driver->cuMemRelease(handle); }) {}
  Result<void> map();

  const Driver* driver_;
  cuda::CUmemGenericAllocationHandle handle_;
  cuda::CUdeviceptr address_ = 0;
  u64 bytes_;
  Cleanup release_;  // the last one is called first
  Cleanup free_;
  Cleanup unmap_;
};

/// True if a device has an attribute; false also if the driver does not know the attribute.
bool device_has(const Driver& driver, cuda::CUdevice device, cuda::CUdevice_attribute attribute);

/// Location of plain memory of this device, or of the host on a NUMA node, in the driver's form.
cuda::CUmemLocation memory_of(cuda::CUdevice device);
cuda::CUmemLocation host_memory_of(int node);
/// Read and write access by this device.
cuda::CUmemAccessDesc access_by(cuda::CUdevice device);

}  // namespace p2pd::bench
