// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"

namespace p2pd::bench {

/// Facts about the machine for a bug report, by name. Unreadable facts are absent, never guessed:
///
///   kernel            "6.8.0-60-generic"
///   driver_version    "570.133.20", of the loaded nvidia module
///   srcversion        of the loaded nvidia module: differs between a patched and a stock one of the same version,
///                     unless only nv-kernel.o was patched
///   build_id          the same, hexadecimal: differs between any two builds
///   open_modules      true or false: the open kernel modules are loaded, or the proprietary ones
///   registry_options  RegistryDwords of the loaded module; empty if it has none
///   iommu_arguments   ["intel_iommu=on", "iommu=pt"], kernel arguments about IOMMU and ACS
///   iommu_domain      "identity", "DMA-FQ": types of the GPUs' IOMMU groups, the different ones joined by ", "
///   acs               {"0000:18:00.0": ["request redirect", ...]}: by port between two of the GPUs, the bits in force
///                     that redirect or refuse peer traffic; [] for a port that passes it on
///   gpus              [{"address", "numa_node", "local_cpulist", "iommu_group_type", "bar1_bytes"}], in order
///   peermem_loaded    true or false: the nvidia_peermem module
///   rdma_nics         ["0000:41:00.0"]: functions with RDMA, see machine/hardware/rdma.hpp
///
/// GPUDirect RDMA is ready with a NIC of rdma_nics and either peermem_loaded or open_modules (DMA-BUF).
nlohmann::json machine_facts(const Host& host, const std::vector<std::string>& gpu_addresses);

}  // namespace p2pd::bench
