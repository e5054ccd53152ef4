// SPDX-License-Identifier: MIT
// acs-redirection: clears ACS redirect at the ports where the paths of two GPUs diverge, until the next boot.
// For hosts on which the kernel argument pci=disable_acs_redir= cannot do it: a boot loader other than GRUB, or a
// kernel that leaves what the firmware set (6.11 to 6.14, before 6.12.23, 6.13.11, 6.14.2). Clears Request Redirect,
// Completion Redirect and P2P Egress Control, and no other bit or port. Fails under lockdown, where the kernel refuses,
// and if a guest has a device, which these bits isolate from the others. Writes the ACS control registers; saves their
// values in /var/lib/p2pd/acs before the first write. Undo restores the values that the same run cleared on the same
// boot: the next boot resets the registers in any case. Reference: PCI Express Base Specification, 7.7.11;
// kernel_lockdown(7); lspci(8), setpci(8).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/action.hpp"
#include "base/kept_state.hpp"
#include "base/log.hpp"
#include "machine/boot/lockdown.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kKept = "/var/lib/p2pd/acs";  // by run: a file named after the boot, lines "PORT CONTROL"
constexpr std::string_view kBoot = "/proc/sys/kernel/random/boot_id";
constexpr std::string_view kOtherWay =
    "Boot with the kernel argument pci=disable_acs_redir= instead, on Linux 6.12.23, 6.13.11, 6.14.2, 6.15 or later: "
    "6.11 and earlier patch levels leave what the firmware set.";

using Controls = std::map<std::string, std::uint16_t>;  ///< port to its control register

std::uint16_t cleared(std::uint16_t control) { return static_cast<std::uint16_t>(control & ~kAcsRedirects); }

Result<std::vector<AcsPort>> ports_between_gpus(const Host& host, const std::vector<PciDevice>& devices) {
  std::vector<AcsPort> ports = acs_ports(host, devices, nvidia_gpus(devices));
  for (const AcsPort& port : ports)
    if (!port.readable) return fail(ErrorCode::denied, "ACS control of " + port.address + " is not readable");
  return ports;
}

/// Error if the kernel or a guest forbids the change.
Result<void> may_be_cleared(const Host& host, const std::vector<PciDevice>& devices) {
  const std::string level = TRY(lockdown(host)).value_or("none");
  if (level != "none")
    return fail(ErrorCode::denied,
                fmt::format("the kernel is locked down ({}): it forbids writes to configuration space", level),
                std::string(kOtherWay));
  for (const PciDevice& device : devices)
    if (pci_driver(host, device.address).ends_with("vfio-pci"))
      return fail(ErrorCode::state,
                  device.address + " is bound to vfio-pci: ACS isolates this guest's device from the others",
                  "Remove the device from the guest and unbind it from vfio-pci, or use another machine for P2P.");
  return {};
}

/// Saved register values in a file.
Result<Controls> read_kept(const Host& host, const std::string& file) {
  Controls kept;
  if (!host.files().exists(file)) return kept;
  std::istringstream lines(TRY(host.files().read(file)));
  std::string port;
  for (int control = 0; lines >> port >> std::hex >> control;) kept[port] = static_cast<std::uint16_t>(control);
  return kept;
}

/// Adds the ports with ACS redirect to the values that this run saved on this boot.
Result<void> keep(Host& host, const std::vector<AcsPort>& ports) {
  const std::string file = TRY(begin_kept(host, kKept)) + "/" + TRY(host.line(kBoot));
  Controls kept = TRY(read_kept(host, file));
  for (const AcsPort& port : ports)
    if (port.redirects()) kept.emplace(port.address, *port.control);
  std::string text;
  for (const auto& [port, control] : kept) text += fmt::format("{} {:#06x}\n", port, control);
  TRY(host.create(file, text));
  return {};
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "clear ACS redirect at the ports between two GPUs, until the next boot";
  for (const AcsPort& port : TRY(ports_between_gpus(host, TRY(pci_devices(host)))))
    if (port.redirects())
      description.commands.push_back(fmt::format("setpci -s {} ECAP_ACS+6.w={:04x}    # was {:04x}", port.address,
                                                 cleared(*port.control), *port.control));
  description.cost = "ACS redirect cleared: pass no device below these ports to a guest";
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<AcsPort> ports = TRY(ports_between_gpus(host, devices));
  if (std::ranges::none_of(ports, &AcsPort::redirects)) return {};
  TRY(may_be_cleared(host, devices));
  TRY(keep(host, ports));
  for (const AcsPort& port : ports) {
    if (!port.redirects()) continue;
    log::info("ACS control of {}: {:#06x}, was {:#06x}", port.address, cleared(*port.control), *port.control);
    TRY_IN("ACS", write_acs_control(host, *std::ranges::find(devices, port.address, &PciDevice::address),
                                    cleared(*port.control)));
  }
  return {};
}

Result<void> undo(Host& host, const Parameters&) {
  const Controls kept = TRY(read_kept(host, kept_for_undo(host, kKept) + "/" + TRY(host.line(kBoot))));
  const std::vector<PciDevice> devices = kept.empty() ? std::vector<PciDevice>() : TRY(pci_devices(host));
  for (const auto& [address, control] : kept) {
    const auto port = std::ranges::find(devices, address, &PciDevice::address);
    if (port == devices.end() || acs_control(*port) == control) continue;  // unplugged, or restored before a kill
    TRY_IN("ACS", write_acs_control(host, *port, control));
  }
  return clear_kept(host, kKept);
}

}  // namespace

extern const Action kAcsRedirectionAction = {
    .id = "acs-redirection",
    .topic = "PCIe",
    .does = "clears ACS redirect at the ports between two GPUs, until the next boot",
    .each_boot = true,
    .describe = describe,
    .apply = apply,
    .undo = undo,
};

}  // namespace p2pd
