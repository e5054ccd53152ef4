// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"

namespace p2pd::bench {

/// What a bug report needs to know of the machine, by name. What cannot be read is absent, never guessed:
///
///   kernel            "6.8.0-60-generic"
///   driver_version    "570.133.20", of the loaded nvidia module
///   srcversion        of the loaded nvidia module: tells a patched one from a stock one of the same version, unless
///                     only nv-kernel.o was patched
///   build_id          the same, hexadecimal: tells any build from any other
///   open_modules      true or false: the open kernel modules are loaded, or the proprietary ones
///   registry_options  RegistryDwords that the loaded module runs with; empty when it was given none
///   iommu_arguments   ["intel_iommu=on", "iommu=pt"], what the kernel command line says of IOMMU and ACS
///   iommu_domain      "identity", "DMA-FQ": types of the GPUs' IOMMU groups, the different ones joined by ", "
///   acs               {"0000:18:00.0": ["request redirect", ...]}: by port between two of the GPUs, the bits in force
///                     that redirect or refuse peer traffic; [] is a port that lets it pass
///   gpus              [{"address", "numa_node", "local_cpulist", "iommu_group_type", "bar1_bytes"}], in order
///   peermem_loaded    true or false: the nvidia_peermem module
///   rdma_nics         ["0000:41:00.0"]: functions that can do RDMA, see machine/hardware/rdma.hpp
///
/// GPUDirect RDMA is ready with a NIC of rdma_nics and either peermem_loaded or open_modules (DMA-BUF).
nlohmann::json machine_facts(const Host& host, const std::vector<std::string>& gpu_addresses);

}  // namespace p2pd::bench
