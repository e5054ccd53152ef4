// SPDX-License-Identifier: MIT
#include "machine/hardware/rdma.hpp"

#include <algorithm>
#include <map>

#include "base/version.hpp"
#include "machine/hardware/nvidia_procfs.hpp"

namespace p2pd {
namespace {

constexpr char kInfiniBand[] = "/sys/class/infiniband";
constexpr std::string_view kDmaBufKernel = "5.12";  // RDMA/core: "Add support for dma-buf based memory region"

std::string last_part(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// Names of InfiniBand devices by the address of their function; software devices (rxe, siw) have none.
std::map<std::string, std::string> infiniband_devices(const Host& host) {
  std::map<std::string, std::string> found;
  for (const std::string& name : host.names(kInfiniBand)) {
    const auto device = host.files().read_link(std::string(kInfiniBand) + "/" + name + "/device");
    if (device) found.emplace(last_part(*device), name);
  }
  return found;
}

}  // namespace

std::vector<RdmaNic> rdma_nics(const Host& host, const std::vector<PciDevice>& devices) {
  constexpr std::uint32_t kEthernet = 0x0200;
  constexpr std::uint32_t kInfiniBandClass = 0x0207;
  const auto registered = infiniband_devices(host);
  std::vector<RdmaNic> nics;
  for (const PciDevice& device : devices) {
    const std::uint32_t kind = device.class_code >> 8;
    const auto known = registered.find(device.address);
    if (known == registered.end() && kind != kEthernet && kind != kInfiniBandClass) continue;
    RdmaNic nic{device.address, known == registered.end() ? "" : known->second, pci_driver(host, device.address)};
    if (!nic.device.empty() || nic.driver == "mlx5_core") nics.push_back(std::move(nic));
  }
  std::ranges::sort(nics, {}, &RdmaNic::address);
  return nics;
}

GpuDirect gpu_direct(const Host& host) {
  GpuDirect found;
  if (host.files().exists("/sys/module")) {
    found.peermem_loaded = host.files().exists("/sys/module/nvidia_peermem");
    found.gdrcopy_loaded = host.files().exists("/sys/module/gdrdrv");
  }
  const auto version = nvidia_version(host);
  if (!version) return found;
  found.open_modules = version->open;
  const auto kernel = host.line("/proc/sys/kernel/osrelease");
  if (!*found.open_modules) {
    found.dma_buf = false;
  } else if (kernel) {
    found.dma_buf = compare_versions(*kernel, kDmaBufKernel) >= 0;
  }
  return found;
}

}  // namespace p2pd
