// SPDX-License-Identifier: MIT
// gpu-generation: two or more GPUs are of one generation, Ampere or newer.
// The CUDA library gives peer access within one generation only, and no driver gives it over PCIe to GeForce cards
// without Resizable BAR. Where some GPUs have peers, the others are alone, and do not fail (machine/hardware/
// peer_groups.hpp). A chip that is newer than this table does not fail by itself. Reads the PCI bus; generations come
// from config/gpus.yaml. Reference: CUDA C++ Programming Guide, Peer-to-Peer Memory Access.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  std::vector<GpuAt> gpus;
  Finding finding;
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  for (const PciDevice& device : devices) {
    if (!device.takes_part()) continue;
    gpus.push_back({device.address, device.id(), model_of(device.id())});
    const std::string generation = gpus.back().model ? gpus.back().model->architecture : "not known";
    finding.saw(sysfs_path(device.address), device.id() + ": " + generation);
  }
  if (gpus.empty()) return not_applicable("no NVIDIA GPU");
  const std::vector<PeerGroup> groups = peer_groups(devices);
  if (groups.size() > 1) {
    finding.set(Verdict::pass, fmt::format("the GPUs are of {} generations, P2P is within each: {}", groups.size(),
                                           groups_text(devices)));
  } else if (const auto problem = groups.empty() ? generation_problem(gpus) : std::nullopt) {
    finding.set(Verdict::fail, problem->summary, problem->next);
    finding.impossible = problem->impossible;
  } else {
    finding.set(Verdict::pass, "the GPUs are of one generation");
  }
  return finding;
}

}  // namespace

extern const Probe kGpuGeneration = {
    .id = "gpu-generation",
    .asserts = "two or more GPUs are of one generation, Ampere or newer",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
