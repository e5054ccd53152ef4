// SPDX-License-Identifier: MIT
// vfio-guests: no device of this machine is assigned to a virtual machine.
// VFIO relies on the IOMMU and on ACS to isolate a guest's devices, and P2P needs both disabled: that
// would end the guest's isolation. Besides, a GPU that is bound to vfio-pci belongs to the guest.
// Reads the driver of every PCI device. Reference: Documentation/driver-api/vfio.rst of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  std::vector<std::string> gpus, others;
  for (const PciDevice& device : TRY(pci_devices(host))) {
    const std::string driver = pci_driver(host, device.address);
    if (!driver.ends_with("vfio-pci")) continue;  // names of variant drivers have the same ending
    (device.is_nvidia_gpu() ? gpus : others).push_back(device.address);
    finding.saw(sysfs_path(device.address, "driver"), driver);
  }
  finding.facts = {{"gpus", gpus}, {"others", others}};
  if (!gpus.empty())
    finding.set(
        Verdict::fail,
        fmt::format("{} is bound to vfio-pci: the card belongs to a guest, not to this system", fmt::join(gpus, ", ")),
        fmt::format("Take {} out of the guest and away from vfio-pci (modprobe.d, vfio-pci.ids=), and reboot.",
                    fmt::join(gpus, ", ")));
  else if (!others.empty())
    finding.set(Verdict::fail,
                fmt::format("{} is bound to vfio-pci, for a guest that relies on the IOMMU and on ACS",
                            fmt::join(others, ", ")),
                "Take the device from the guest (modprobe.d, vfio-pci.ids=), or leave P2P off on this machine.");
  else
    finding.set(Verdict::pass, "no device is assigned to a guest");
  return finding;
}

}  // namespace

extern const Probe kVfioGuests = {
    .id = "vfio-guests",
    .asserts = "no device of this machine is assigned to a virtual machine (vfio-pci)",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
