// SPDX-License-Identifier: MIT
// bridge-windows: every bridge above each GPU lets BAR1 through, at its required size.
// The bridges above limit the size of BAR1. Linux recreates a window that contains only one GPU when the driver resizes
// BAR1, so its current size is irrelevant (bar1_room.hpp). A window that other functions share, another card or the
// switch's own BAR, keeps the size from the firmware. A BAR1 without an address gets one at boot, with
// pci=realloc. Reads configuration space (the first 64 bytes, no root needed), sysfs `resource` of the devices below,
// /proc/iomem and the kernel's log (as root). Reference: PCI-to-PCI Bridge Architecture Specification, 3.2.5;
// drivers/pci/setup-bus.c.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/probe.hpp"
#include "machine/boot/bar1_room.hpp"

namespace p2pd {
namespace {

/// Bridge above a GPU.
struct Bridge {
  const PciDevice* port;
  std::vector<const Bar1*> gpus;   ///< GPUs below it
  std::uint64_t needed_bytes = 0;  ///< sum for all devices below it, each GeForce BAR1 at its goal
  bool counted = true;             ///< false: `resource` of a device below was not readable
  bool holds = false;
  bool moves = false;  ///< it does not hold, but Linux recreates it for all GPUs that need it
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

/// Required size of a BAR1.
std::uint64_t wanted_bytes(const Bar1& gpu) {
  const std::uint64_t now = gpu.range ? gpu.range->length : 0;
  return gpu.carries_p2p() ? std::max(now, gpu.goal_bytes().value_or(now)) : now;
}

/// Adds without overflow: sizes in a forged record may have any value.
void add(std::uint64_t& sum, std::uint64_t bytes) { sum += std::min(bytes, ~sum); }

/// Adds the size of the BARs of `device` in the window.
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

/// True if a window has the current BAR1: some firmware puts a small BAR1 into the other window.
bool holds_now(const PciDevice& port, const Bar1& gpu) {
  if (!gpu.range || gpu.range->length == 0) return true;
  return prefetchable_window(port).holds(*gpu.range) || memory_window(port).holds(*gpu.range);
}

void look_below(const Host& host, const std::vector<PciDevice>& devices, Bridge& bridge) {
  for (const PciDevice& device : devices) {
    if (PciTree::is_below(*bridge.port, device)) count(host, device, bridge);
  }
  // a small BAR1 that need not grow may be in the other window
  const bool grows = std::ranges::any_of(bridge.gpus, [](const Bar1* gpu) { return gpu->must_grow(); });
  bridge.holds = std::ranges::all_of(bridge.gpus, [&](const Bar1* gpu) { return holds_now(*bridge.port, *gpu); }) &&
                 (!grows || prefetchable_window(*bridge.port).length >= bridge.needed_bytes);
}

/// Result of a resize of each GPU's BAR1, by GPU.
using Rooms = std::map<const PciDevice*, Bar1Room>;

void ask_kernel(Bridge& bridge, const Rooms& rooms) {
  bridge.moves = !bridge.holds && std::ranges::all_of(bridge.gpus, [&](const Bar1* gpu) {
    return gpu->must_grow() ? rooms.at(gpu->gpu).kind == Bar1Room::Kind::enough : holds_now(*bridge.port, *gpu);
  });
}

nlohmann::json facts_of(const Bridge& bridge) {
  return {{"address", bridge.port->address},
          {"window_bytes", prefetchable_window(*bridge.port).length},
          {"needed_bytes", bridge.needed_bytes},
          {"holds", bridge.holds},
          {"moves", bridge.moves}};
}

std::string size_of(const Bridge& bridge) {
  return fmt::format("{} lets {} through, {} are needed", bridge.port->address,
                     mib(prefetchable_window(*bridge.port).length), mib(bridge.needed_bytes));
}

/// "0000:00:01.0 lets 288 MiB through, 32800 MiB are needed; ..." for bridges that neither hold nor move.
std::string too_small(const std::vector<Bridge>& bridges) {
  std::vector<std::string> sizes;
  for (const Bridge& bridge : bridges)
    if (!bridge.holds && !bridge.moves) sizes.push_back(size_of(bridge));
  return fmt::format("{}", fmt::join(sizes, "; "));
}

/// Judges bridges of which `small` are listed as too small.
void judge_small(Finding& finding, const std::string& small, const Rooms& rooms) {
  finding.summary = "too small for BAR1 at its full size: " + small;
  for (const auto& [gpu, room] : rooms) {
    if (room.kind != Bar1Room::Kind::unknown) continue;
    finding.summary += "; it is not readable whether Linux can recreate them";
    finding.next = "Run p2pctl doctor as root: only root can read /proc/iomem.";
    return;
  }
  finding.verdict = Verdict::fail;
  const auto shared = std::ranges::find_if(rooms, [](const auto& room) { return room.second.fixed != nullptr; });
  if (shared != rooms.end())
    finding.summary += fmt::format("; the window of {} holds other functions or registers, so its size is fixed",
                                   shared->second.fixed->address);
  const auto refused = [](const auto& room) { return room.second.kind == Bar1Room::Kind::refused; };
  if (std::ranges::any_of(rooms, refused)) finding.summary += "; Linux has tried, and found no space";
  finding.next =
      "In the firmware setup (BIOS), turn on \"Above 4G Decoding\" and \"Resizable BAR\", turn CSM off, and "
      "raise \"MMIO High Size\" where there is such a setting.";
}

void judge(Finding& finding, const std::vector<Bridge>& bridges, const Rooms& rooms) {
  const std::string small = too_small(bridges);
  const auto uncounted = std::ranges::find(bridges, false, &Bridge::counted);
  const auto moving = std::ranges::count(bridges, true, &Bridge::moves);
  const Bar1* without = nullptr;
  for (const Bridge& bridge : bridges)
    for (const Bar1* gpu : bridge.gpus)
      if (gpu->must_grow() && gpu->range->length == 0) without = gpu;
  if (!small.empty()) return judge_small(finding, small, rooms);
  if (without != nullptr) {
    finding.set(Verdict::fail, fmt::format("BAR1 of {} has no address, and its bus has room", without->gpu->address),
                "Boot with \"pci=realloc\", so that Linux looks for an address where the firmware found none.");
  } else if (uncounted != bridges.end()) {
    finding.set(Verdict::unknown,
                fmt::format("the functions in the window of {} are not readable", uncounted->port->address),
                "Run p2pctl doctor as root, on a machine or record with sysfs.");
  } else {
    finding.set(
        Verdict::pass,
        fmt::format("all {} bridges above the GPUs let BAR1 through at the size that it can have", bridges.size()));
    if (moving > 0) finding.summary += fmt::format("; Linux recreates {} of them when the driver resizes it", moving);
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<Bar1> gpus = bar1_of_gpus(host, devices);
  std::vector<Bridge> bridges = bridges_above(gpus);
  if (bridges.empty())
    return not_applicable(gpus.empty()
                              ? "no NVIDIA GPU on the PCI bus"
                              : "no bridge above a GPU is visible here: a virtual machine has them on its host");
  const std::vector<Bar1Room> found = rooms_for_bar1(host, gpus);
  Rooms rooms;
  for (std::size_t i = 0; i < gpus.size(); ++i) rooms[gpus[i].gpu] = found[i];
  Finding finding;
  for (Bridge& bridge : bridges) {
    look_below(host, devices, bridge);
    ask_kernel(bridge, rooms);
    finding.facts["bridges"].push_back(facts_of(bridge));
    finding.saw(pci_source(host) + ", registers 0x24 to 0x2f of " + bridge.port->address, size_of(bridge));
  }
  judge(finding, bridges, rooms);
  return finding;
}

}  // namespace

extern const Probe kBridgeWindows = {
    .id = "bridge-windows",
    .asserts = "the bridges above every GPU let BAR1 through at the size that covers its VRAM",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
