// SPDX-License-Identifier: MIT
// bridge-windows: the prefetchable window of every bridge above each GPU holds BAR1, at the size that it should have.
// BAR1 can only be as large as what the bridges above let through. Firmware without "Above 4G Decoding" sizes them to
// the BARs as they are, and then a resize fails, whoever tries it: a window of exactly BAR1 + BAR3 is the sign. All
// that lies below a bridge shares its window, other cards and the switch's own BAR too. Reads configuration space (the
// first 64 bytes, no root needed) and sysfs `resource` of what is below. Reference: PCI-to-PCI Bridge Architecture
// Specification, 3.2.5; drivers/pci/setup-bus.c (pci_reassign_bridge_resources).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/hardware/bar1.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kAbove4G = std::uint64_t{1} << 32;

/// One bridge above a GPU.
struct Bridge {
  const PciDevice* port;
  std::vector<const Bar1*> gpus;   ///< below it
  std::uint64_t needed_bytes = 0;  ///< of all that is below it, each GeForce BAR1 at its goal
  bool counted = true;             ///< false: of something below, `resource` was not readable
  bool holds = false;
  bool root_has_room = false;  ///< it does not hold, but the root port above it does
};

std::vector<Bridge> bridges_above(const std::vector<Bar1>& gpus) {
  std::map<std::string, Bridge> found;
  for (const Bar1& gpu : gpus) {
    if (gpu.gpu->is_lost()) continue;
    for (const PciDevice* port : gpu.above.ports) {
      Bridge& bridge = found.try_emplace(port->address, Bridge{port, {}}).first->second;
      bridge.gpus.push_back(&gpu);
    }
  }
  std::vector<Bridge> bridges;
  for (auto& [address, bridge] : found) bridges.push_back(std::move(bridge));
  return bridges;
}

/// What a BAR1 takes once it is as it should be.
std::uint64_t wanted_bytes(const Bar1& gpu) {
  const std::uint64_t now = gpu.range ? gpu.range->length : 0;
  return gpu.carries_p2p() ? std::max(now, gpu.goal_bytes().value_or(now)) : now;
}

/// Sizes of a made-up record may be anything.
void add(std::uint64_t& sum, std::uint64_t bytes) { sum += std::min(bytes, ~sum); }

/// Adds what the BARs of `device` take of the window.
void count(const Host& host, const PciDevice& device, Bridge& bridge) {
  const auto bars = pci_bars(host, device);
  bridge.counted = bridge.counted && bars && !bars->empty();
  const auto gpu = std::ranges::find(bridge.gpus, &device, [](const Bar1* bar1) { return bar1->gpu; });
  const bool has_bar1 = gpu != bridge.gpus.end();
  if (has_bar1) add(bridge.needed_bytes, wanted_bytes(**gpu));
  if (!bars) return;
  for (std::size_t i = 0; i < bars->size(); ++i) {
    if (has_bar1 && i == static_cast<std::size_t>(nvidia_bar1(device))) continue;
    if ((*bars)[i].prefetchable) add(bridge.needed_bytes, (*bars)[i].length);
  }
}

/// Some firmware puts a small BAR1 into the other window.
bool holds_now(const PciDevice& port, const Bar1& gpu) {
  if (!gpu.range || gpu.range->length == 0) return true;
  return prefetchable_window(port).holds(*gpu.range) || memory_window(port).holds(*gpu.range);
}

void look_below(const Host& host, const std::vector<PciDevice>& devices, Bridge& bridge) {
  for (const PciDevice& device : devices) {
    if (PciTree::is_below(*bridge.port, device)) count(host, device, bridge);
  }
  // what is small and need not grow may lie in the other window
  const bool grows = std::ranges::any_of(
      bridge.gpus, [](const Bar1* gpu) { return wanted_bytes(*gpu) > (gpu->range ? gpu->range->length : 0); });
  bridge.holds = std::ranges::all_of(bridge.gpus, [&](const Bar1* gpu) { return holds_now(*bridge.port, *gpu); }) &&
                 (!grows || prefetchable_window(*bridge.port).length >= bridge.needed_bytes);
}

/// Firmware that gave the root port room, and a switch below it none, is another case than firmware that gave none.
void look_above(std::vector<Bridge>& bridges) {
  for (Bridge& bridge : bridges) {
    const auto root = std::ranges::find(bridges, bridge.gpus.front()->above.ports.back(), &Bridge::port);
    bridge.root_has_room = !bridge.holds && root != bridges.end() && root->holds;
  }
}

nlohmann::json facts_of(const Bridge& bridge) {
  const PciRange window = prefetchable_window(*bridge.port);
  auto gpus = nlohmann::json::array();
  for (const Bar1* gpu : bridge.gpus) gpus.push_back(gpu->gpu->address);
  return {{"address", bridge.port->address},
          {"window_bytes", window.length},
          {"above_4g", window.length > 0 && window.first >= kAbove4G},
          {"needed_bytes", bridge.needed_bytes},
          {"all_below_readable", bridge.counted},
          {"holds", bridge.holds},
          {"root_has_room", bridge.root_has_room},
          {"gpus", std::move(gpus)}};
}

std::string size_of(const Bridge& bridge) {
  return fmt::format("{} lets {} through, {} are needed", bridge.port->address,
                     mib(prefetchable_window(*bridge.port).length), mib(bridge.needed_bytes));
}

void judge(Finding& finding, const std::vector<Bridge>& bridges) {
  std::string small;
  for (const Bridge& bridge : bridges) {
    if (!bridge.holds) small += (small.empty() ? "" : "; ") + size_of(bridge);
  }
  const auto uncounted = std::ranges::find(bridges, false, &Bridge::counted);
  finding.verdict = Verdict::fail;
  if (!small.empty()) {
    finding.summary = "too small for BAR1 at its full size: " + small;
    finding.next = std::ranges::any_of(bridges, &Bridge::root_has_room)
                       ? "Boot with \"pci=realloc\", so that Linux sizes these bridges anew: the root port has room."
                       : "In the firmware setup (BIOS), turn on \"Above 4G Decoding\" and \"Resizable BAR\", turn CSM "
                         "off, and raise \"MMIO High Size\" where there is such a setting.";
  } else if (uncounted != bridges.end()) {
    finding.verdict = Verdict::unknown;
    finding.summary = fmt::format("what shares the window of {} is not readable", uncounted->port->address);
    finding.next = "Run p2pctl doctor as root, on a machine or record with sysfs.";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary =
        fmt::format("all {} bridges above the GPUs let BAR1 through at the size that it can have", bridges.size());
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<Bar1> gpus = TRY(bar1_of_gpus(host, devices));
  std::vector<Bridge> bridges = bridges_above(gpus);
  Finding finding;
  finding.facts["bridges"] = nlohmann::json::array();
  for (Bridge& bridge : bridges) look_below(host, devices, bridge);
  look_above(bridges);
  for (const Bridge& bridge : bridges) {
    finding.facts["bridges"].push_back(facts_of(bridge));
    finding.evidence.push_back(
        {pci_source(host) + ", registers 0x24 to 0x2f of " + bridge.port->address, size_of(bridge)});
  }
  if (bridges.empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = gpus.empty() ? "no NVIDIA GPU on the PCI bus"
                                   : "no bridge above a GPU is visible here: a virtual machine has them on its host";
  } else {
    judge(finding, bridges);
  }
  return finding;
}

}  // namespace

extern const Probe kBridgeWindows;
const Probe kBridgeWindows = {
    .id = "bridge-windows",
    .asserts = "the bridges above every GPU let BAR1 through at the size that covers its VRAM",
    .check = check,
    .of_the_machine = true,
};

}  // namespace p2pd
