// SPDX-License-Identifier: MIT
// gpudirect-rdma: network cards that can read and write VRAM directly, and missing requirements for it.
// P2P inside the machine does not need it; jobs over several machines do, so this is advice and never a
// gate. The driver offers two ways: dma-buf (open modules, Linux 5.12), which needs no module, and nvidia_peermem,
// which needs the NIC vendor's RDMA stack. NVIDIA's own drivers allow neither on GeForce. The path from a NIC to a GPU
// decides its value. Reads /sys/class/infiniband, /sys/module, /proc/driver/nvidia/version, configuration space.
// Reference: NVIDIA GPUDirect RDMA documentation; driver README, chapter "GPUDirect RDMA Peer Memory Client".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "machine/hardware/rdma.hpp"

namespace p2pd {
namespace {

/// Method that a NIC uses, by preference; empty if neither is available.
std::string way_of(const GpuDirect& driver) {
  if (driver.dma_buf.value_or(false)) return "dma-buf";
  return driver.peermem_loaded.value_or(false) ? "nvidia_peermem" : "";
}

/// NICs with the kind of their path to each GPU.
nlohmann::json nic_facts(const Host& host, const std::vector<PciDevice>& devices, const std::vector<RdmaNic>& nics,
                         const std::vector<std::string>& gpus, const std::string& way) {
  std::vector<std::string> addresses = gpus;
  for (const RdmaNic& nic : nics) addresses.push_back(nic.address);
  const auto paths = paths_between(host, devices, addresses);
  nlohmann::json facts = nlohmann::json::array();
  for (std::size_t i = 0; i < nics.size(); ++i) {
    nlohmann::json ways = nlohmann::json::array();
    for (std::size_t j = 0; j < gpus.size(); ++j)
      ways.push_back({{"address", gpus[j]}, {"kind", to_string(paths[gpus.size() + i][j].kind)}});
    facts.push_back({{"address", nics[i].address},
                     {"device", nics[i].device},
                     {"driver", nics[i].driver},
                     {"ready", !way.empty() && !nics[i].device.empty()},
                     {"gpus", std::move(ways)}});
  }
  return facts;
}

/// Missing requirements and notes, each in a few words.
std::vector<std::string> advice(const GpuDirect& driver, const std::vector<RdmaNic>& nics,
                                const std::vector<Bar1>& gpus) {
  std::vector<std::string> lines;
  std::vector<std::string> unregistered;
  for (const RdmaNic& nic : nics) {
    if (nic.device.empty()) unregistered.push_back(nic.address);
  }
  if (!unregistered.empty())
    lines.push_back(fmt::format("modprobe mlx5_ib: {} has no InfiniBand device", fmt::join(unregistered, ", ")));
  if (way_of(driver).empty())
    lines.push_back(driver.open_modules ? "modprobe nvidia_peermem, or the open kernel modules (dma-buf, Linux 5.12)"
                                        : "no NVIDIA driver is loaded");
  if (std::ranges::any_of(gpus, [](const Bar1& bar) { return bar.model && bar.model->segment == "GeForce"; }))
    lines.emplace_back("NVIDIA's own drivers refuse it on GeForce");
  return lines;
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  const std::vector<RdmaNic> nics = rdma_nics(host, devices);
  const GpuDirect driver = gpu_direct(host);
  const std::string way = way_of(driver);
  Finding finding;
  finding.facts = {{"nics", nic_facts(host, devices, nics, gpus, way)},
                   {"way", or_null(way)},
                   {"peermem_loaded", or_null(driver.peermem_loaded)},
                   {"dma_buf", or_null(driver.dma_buf)},
                   {"gdrcopy_loaded", or_null(driver.gdrcopy_loaded)}};
  for (const RdmaNic& nic : nics)
    finding.saw(sysfs_path(nic.address),
                fmt::format("{}, driver {}", nic.device.empty() ? "no InfiniBand device" : nic.device,
                            nic.driver.empty() ? "none" : nic.driver));
  if (gpus.empty() || nics.empty()) {
    finding.set(Verdict::not_applicable, gpus.empty() ? "no NVIDIA GPU" : "no network card that can do RDMA");
    return finding;
  }
  const auto ready = std::ranges::count_if(finding.facts["nics"], [](const auto& nic) { return nic["ready"] == true; });
  finding.set(Verdict::pass,
              fmt::format("{} of {} RDMA NICs can reach VRAM{}{}", ready, nics.size(), way.empty() ? "" : " by ", way));
  const std::vector<std::string> lines = advice(driver, nics, bar1_of_gpus(host, devices));
  if (!lines.empty()) finding.summary += fmt::format("; {}", fmt::join(lines, "; "));
  return finding;
}

}  // namespace

extern const Probe kGpudirectRdma = {
    .id = "gpudirect-rdma",
    .asserts = "advice only: network cards that can read and write VRAM directly",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
