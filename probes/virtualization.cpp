// SPDX-License-Identifier: MIT
// virtualization: GeForce GPUs are on a physical machine, or their hypervisor lets them exchange data.
// A guest sees the GPUs, but not the ports above them: its host decides links, ACS and the IOMMU, and a missing
// Resizable BAR capability says nothing about the card. A driver refuses P2P behind an emulated chipset (CNS), unless
// the hypervisor put both GPUs into one clique, or P2P is forced: that comes before its look at the chipset. Every
// build of the catalogue forces it, by its code or its registry keys, and so does stock_p2p; the proof then decides.
// Reads the flag `hypervisor` of /proc/cpuinfo, /sys/class/dmi/id and configuration space.
// Reference: src/basic/virt.c of systemd, which ranks these sources; hw/vfio/pci-quirks.c of QEMU (the clique).
#include "machine/hardware/virtual_machine.hpp"

#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/hardware/gpus.hpp"

namespace p2pd {
namespace {

/// NVIDIA GPUs of the bus, as a hypervisor shows them.
struct Gpus {
  int count = 0;
  int below_port = 0;
  bool one_clique = true;  ///< a hypervisor put all of them into the same one
};

Gpus look_at(const std::vector<PciDevice>& devices) {
  Gpus gpus;
  std::optional<int> first;
  for (const PciDevice& device : devices) {
    if (!device.takes_part()) continue;
    const std::optional<int> clique = gpudirect_clique(device);
    if (gpus.count++ == 0) first = clique;
    gpus.below_port += has_port_above(device, devices) ? 1 : 0;
    gpus.one_clique = gpus.one_clique && clique && clique == first;
  }
  return gpus;
}

constexpr Parameter kParameters[] = {kNextEntryParameter};

/// Driver that forces P2P here: the wanted build, or NVIDIA's own modules with options; empty: none.
Result<std::string> forcing_driver(const Host& host, const Parameters& parameters) {
  const auto entry = parameters.value("entry", std::string(kNoEntry));
  if (entry != kNoEntry && entry != kChosenEntry) return entry;
  for (const std::string_view own : {kStockEntry, kStockMailboxEntry})
    if (const StockP2p stock = TRY(stock_p2p(host, own)); stock.why_not.empty())
      return "NVIDIA's own driver " + stock.version + " with registry keys";
  return std::string();
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  VirtualMachine machine = virtual_machine(host, devices);
  if (!machine.guest)
    return fail(ErrorCode::not_found,
                "neither /proc/cpuinfo nor /sys/class/dmi/id nor a GPU tells whether this is a guest");
  const Gpus gpus = look_at(devices);
  const bool guest = *machine.guest;
  Finding finding;
  finding.evidence = std::move(machine.evidence);
  finding.facts = {{"guest", guest}, {"hypervisor", or_null(machine.hypervisor)}};
  if (!guest) {
    finding.set(Verdict::pass, "this system runs on bare metal");
    return finding;
  }
  finding.set(Verdict::not_applicable,
              fmt::format("this system is a guest{}{}: links, ACS and IOMMU {} are its host's",
                          machine.hypervisor.empty() ? "" : " of ", machine.hypervisor,
                          gpus.below_port == 0 ? "above the GPUs" : "beyond the ports that it shows"));
  if (gpus.one_clique || gpus.count < 2 || !TRY(needs_built_driver(host))) return finding;
  if (const std::string driver = TRY(forcing_driver(host, parameters)); !driver.empty()) {
    finding.summary += fmt::format("; {} gives P2P without asking about the chipset: the proof decides", driver);
    return finding;
  }
  finding.set(
      Verdict::fail, finding.summary + ", and stock drivers refuse P2P behind its emulated chipset",
      "On the host, give these GPUs the same clique (QEMU: vfio-pci, x-nv-gpudirect-clique=0), and leave its IOMMU and "
      "ACS as they are, which isolate the guest; or take them out of the guest and run p2pd on the host.");
  return finding;
}

}  // namespace

extern const Probe kVirtualization = {
    .id = "virtualization",
    .asserts = "GeForce GPUs are on a physical machine, or their hypervisor lets them exchange data",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
