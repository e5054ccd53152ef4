// SPDX-License-Identifier: MIT
// virtualization: this system runs on the machine itself, not as a guest of a hypervisor.
// A guest sees the GPUs, but not the ports above them: links, ACS and the IOMMU are decided on its host, and a missing
// Resizable BAR capability says nothing about the card. That is a fact to read the others by, so never a fail.
// Reads the flag `hypervisor` of /proc/cpuinfo, /sys/class/dmi/id and configuration space.
// Reference: src/basic/virt.c of systemd, which ranks these sources.
#include "base/virtual_machine.hpp"

#include <fmt/format.h>

#include "base/probe.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  VirtualMachine machine = virtual_machine(host, devices);
  if (!machine.guest)
    return fail(ErrorCode::not_found,
                "neither /proc/cpuinfo nor /sys/class/dmi/id nor a GPU tells whether this is a guest");
  int gpus = 0;
  int below_port = 0;
  for (const PciDevice& device : devices) {
    if (!device.is_nvidia_gpu()) continue;
    ++gpus;
    below_port += has_port_above(device, devices) ? 1 : 0;
  }
  const bool guest = *machine.guest;
  Finding finding;
  finding.evidence = std::move(machine.evidence);
  finding.facts = {{"guest", guest},
                   {"hypervisor", machine.hypervisor.empty() ? nlohmann::json() : nlohmann::json(machine.hypervisor)},
                   {"cpu_flag", machine.cpu_flag ? nlohmann::json(*machine.cpu_flag) : nlohmann::json()},
                   {"gpus", gpus},
                   {"gpus_below_port", below_port},
                   {"host_decides", nlohmann::json::array()}};
  finding.verdict = guest ? Verdict::not_applicable : Verdict::pass;
  finding.summary = "this system runs on the machine itself";
  if (!guest) return finding;
  finding.facts["host_decides"] = {"acs", "iommu", "links", "peer access of chipsets"};
  finding.summary = fmt::format("this system is a guest{}{}: links, ACS and IOMMU {} are its host's",
                                machine.hypervisor.empty() ? "" : " of ", machine.hypervisor,
                                below_port == 0 ? "above the GPUs" : "beyond the ports that it shows");
  return finding;
}

}  // namespace

extern const Probe kVirtualization;
const Probe kVirtualization = {
    "virtualization", "this system runs on the machine itself, not as a guest", {}, nullptr, check, false};

}  // namespace p2pd
