// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {

/// A PCI function that can do RDMA.
struct RdmaNic {
  std::string address;  ///< "0000:41:00.0"
  std::string device;   ///< InfiniBand device, "mlx5_0"; empty: none is registered (mlx5_ib is not loaded)
  std::string driver;   ///< "mlx5_core"; empty: none
};

/// Finds functions with a device in /sys/class/infiniband, and those that mlx5_core drives; by address.
std::vector<RdmaNic> rdma_nics(const Host& host, const std::vector<PciDevice>& devices);

/// Ways in which the NVIDIA driver lets a NIC read and write VRAM; nullopt if no file shows it.
struct GpuDirect {
  std::optional<bool> peermem_loaded;  ///< module nvidia_peermem is loaded
  std::optional<bool> open_modules;    ///< the open kernel modules are loaded, not the proprietary ones
  std::optional<bool> dma_buf;         ///< open modules on a kernel that has dma-buf for RDMA (5.12)
  std::optional<bool>
      gdrcopy_loaded;  ///< module gdrdrv of GDRCopy is loaded: the CPU's path to VRAM, for small messages
};
GpuDirect gpu_direct(const Host& host);

}  // namespace p2pd
