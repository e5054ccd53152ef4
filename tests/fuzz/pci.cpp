// SPDX-License-Identifier: MIT
// PCI configuration space, and the probes that read it.
#include <algorithm>

#include "base/probe.hpp"
#include "fuzz.hpp"
#include "machine/hardware/pci.hpp"

namespace {

void walk(const p2pd::PciDevice& device) {
  (void)device.is_lost();
  const int bar1 = p2pd::nvidia_bar1(device);
  for (const int bar : {0, bar1}) {
    const auto found = p2pd::resizable_bar(device, bar);
    if (found) p2pd::fuzz::require(std::ranges::is_sorted(found->supported_bytes), "sizes out of order");
  }
  for (std::uint16_t id = 0; id < 0x40; ++id) {
    const auto offset = device.extended_capability(id);
    if (offset) p2pd::fuzz::require(*offset >= 0x100 && *offset + 4U <= device.config.size(), "a capability outside");
  }
}

}  // namespace

/// Any text as an lspci dump, any bytes as extended configuration space: looping lists end, no read is out of bounds.
FUZZ(pci) {
  static const Tree tree;
  PciDevice device;
  device.config.assign(0x100, 0);
  device.config.insert(device.config.end(), input.begin(), input.end());
  device.extended_readable = !input.empty();
  walk(device);
  tree.write("/lspci-xxxx.txt", input);
  const auto devices = pci_devices(tree.host);
  if (!devices) return;
  for (const PciDevice& found : *devices) walk(found);
}

namespace p2pd {
extern const Probe kAcsRedirection;
extern const Probe kBar1Size;
extern const Probe kBridgeWindows;
extern const Probe kPcieLinks;
}  // namespace p2pd

/// Any text as an lspci dump: the probes of the PCIe path end, and a fail names a next step.
FUZZ(pcie_probes) {
  static const Tree tree;
  tree.write("/lspci-xxxx.txt", input);
  for (const Probe* probe : {&kAcsRedirection, &kBar1Size, &kBridgeWindows, &kPcieLinks}) {
    const auto finding = probe->check(tree.host, Parameters::object());
    if (!finding) continue;
    require(!finding->summary.empty(), "nothing said");
    require(finding->verdict != Verdict::fail || !finding->next.empty(), "a fail without a next step");
  }
}
