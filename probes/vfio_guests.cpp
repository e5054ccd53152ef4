// SPDX-License-Identifier: MIT
// vfio-guests: no device of this machine is assigned to a virtual machine.
// VFIO relies on the IOMMU and on ACS to isolate a guest's devices, and P2P needs both disabled: that
// would end the guest's isolation. Besides, a GPU that is bound to vfio-pci belongs to the guest.
// Virtual machines of Proxmox VE are named, with what gives them the device.
// Reads the driver of every PCI device, vfio-pci's ids in modprobe.d and in the kernel's arguments, /etc/pve.
// Reference: Documentation/driver-api/vfio.rst of Linux; qm.conf(5).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/driver/proxmox.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

/// What gives devices to guests.
struct Givers {
  std::vector<ProxmoxGuest> guests;
  std::vector<ModuleOption> ids;  ///< option "ids" of vfio-pci, as modprobe gives it
};

Givers givers_of(const Host& host) {
  Givers givers{proxmox_guests(host), module_options(host).value_or(std::vector<ModuleOption>())};
  std::erase_if(givers.ids, [](const ModuleOption& one) { return one.module != "vfio_pci" || one.name != "ids"; });
  return givers;
}

/// True for an id of `device` in "10de:2684,10de:22ba:...".
bool names(const ModuleOption& ids, const PciDevice& device) {
  const std::string list = "," + ids.value + ",", id = "," + device.id();
  for (std::size_t at = list.find(id); at != std::string::npos; at = list.find(id, at + 1))
    if (list[at + id.size()] == ',' || list[at + id.size()] == ':') return true;
  return false;
}

/// Takes each device from the guests: "Take 0000:02:00.0 out of the guest", then the commands and files that give it.
std::string how_to_take(const Givers& givers, const std::vector<PciDevice>& devices, const std::string& last) {
  std::vector<std::string> addresses, steps;
  const auto add = [&](std::string step) {
    if (std::ranges::find(steps, step) == steps.end()) steps.push_back(std::move(step));
  };
  for (const PciDevice& device : devices) addresses.push_back(device.address);
  for (const PciDevice& device : devices)
    for (const ProxmoxGuest& guest : givers.guests)
      if (const std::string option = guest.option_of(device); !option.empty()) {
        if (guest.running) add(guest.shutdown());
        add(fmt::format("qm set {} --delete {}", guest.id, option));
      }
  for (const PciDevice& device : devices)
    for (const ModuleOption& ids : givers.ids)
      if (names(ids, device)) add(fmt::format("remove {} from vfio-pci's ids in {}", device.id(), ids.source()));
  if (steps.empty())
    return fmt::format("Take {} out of the guest and away from vfio-pci (modprobe.d, vfio-pci.ids=), {}.",
                       fmt::join(addresses, ", "), last);
  return fmt::format("Take {} out of the guest: {}; {}.", fmt::join(addresses, ", "), fmt::join(steps, "; "), last);
}

/// "0000:02:00.0 is bound to vfio-pci", and the virtual machines that have it.
std::string bound_text(const Givers& givers, const std::vector<PciDevice>& devices) {
  std::vector<std::string> addresses, owners;
  for (const PciDevice& device : devices) {
    addresses.push_back(device.address);
    for (const ProxmoxGuest& guest : givers.guests)
      if (!guest.option_of(device).empty() && std::ranges::count(owners, guest.text()) == 0)
        owners.push_back(guest.text());
  }
  return fmt::format("{} is bound to vfio-pci{}", fmt::join(addresses, ", "),
                     owners.empty() ? "" : fmt::format(" for {}", fmt::join(owners, ", ")));
}

/// A GPU that is not a guest's now, and will be: once a virtual machine starts.
std::string given_later(const Givers& givers, const std::vector<PciDevice>& devices) {
  for (const PciDevice& device : devices)
    for (const ProxmoxGuest& guest : givers.guests)
      if (device.is_nvidia_gpu() && !guest.option_of(device).empty())
        return fmt::format("{} is given {} when it starts", guest.text(), device.address);
  return {};
}

nlohmann::json addresses_of(const std::vector<PciDevice>& devices) {
  nlohmann::json addresses = nlohmann::json::array();
  for (const PciDevice& device : devices) addresses.push_back(device.address);
  return addresses;
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  std::vector<PciDevice> gpus, others, rest;
  for (const PciDevice& device : TRY(pci_devices(host))) {
    const std::string driver = pci_driver(host, device.address);
    const bool given = driver.ends_with("vfio-pci");  // names of variant drivers have the same ending
    (!given ? rest : device.is_nvidia_gpu() ? gpus : others).push_back(device);
    if (given) finding.saw(sysfs_path(device.address, "driver"), driver);
  }
  const Givers givers = givers_of(host);
  for (const ModuleOption& ids : givers.ids) finding.saw(ids.source(), "vfio-pci ids=" + ids.value);
  finding.facts = {{"gpus", addresses_of(gpus)}, {"others", addresses_of(others)}};
  if (!gpus.empty())
    finding.set(Verdict::fail, bound_text(givers, gpus) + ": the card belongs to a guest, not to this system",
                how_to_take(givers, gpus, givers.ids.empty() ? "and reboot" : "make the initramfs anew, and reboot"));
  else if (!others.empty())
    finding.set(Verdict::fail, bound_text(givers, others) + ", for a guest that relies on the IOMMU and on ACS",
                how_to_take(givers, others, "or leave P2P off on this machine"));
  else
    finding.set(Verdict::pass, "no device is assigned to a guest");
  if (const std::string later = given_later(givers, rest); !later.empty()) finding.summary += "; " + later;
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
