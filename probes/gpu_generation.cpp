// SPDX-License-Identifier: MIT
// gpu-generation: the GPUs are of one generation, and no GeForce among them is older than Ampere.
// The CUDA library gives peer access within one generation only, and no driver gives it over PCIe to GeForce cards
// without Resizable BAR. NVLink bridges of older cards may still work: the proof decides. A chip that is newer than
// this table does not fail by itself. Reads the PCI bus; generations come from config/gpus.yaml. Reference: CUDA C++
// Programming Guide, Peer-to-Peer Memory Access.
#include "machine/hardware/gpus.hpp"

#include "base/probe.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<GpuModel> models = TRY(gpu_models());
  std::vector<GpuAt> gpus;
  Finding finding;
  nlohmann::json listed = nlohmann::json::array();
  for (const PciDevice& device : TRY(pci_devices(host))) {
    if (!device.takes_part()) continue;
    gpus.push_back({device.address, device.id(), model_of(models, device.id())});
    const std::string generation = gpus.back().model ? gpus.back().model->architecture : "not known";
    listed.push_back({{"address", device.address}, {"id", device.id()}, {"generation", generation}});
    finding.evidence.push_back({"/sys/bus/pci/devices/" + device.address, device.id() + ": " + generation});
  }
  finding.facts["gpus"] = std::move(listed);
  if (gpus.empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no NVIDIA GPU";
  } else if (const auto problem = generation_problem(gpus)) {
    finding.verdict = Verdict::fail;
    finding.summary = problem->summary;
    finding.next = problem->next;
    finding.impossible = problem->impossible;
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = "the GPUs are of one generation";
  }
  return finding;
}

}  // namespace

extern const Probe kGpuGeneration;
const Probe kGpuGeneration = {
    .id = "gpu-generation",
    .asserts = "the GPUs are of one generation, and no GeForce among them is older than Ampere",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
