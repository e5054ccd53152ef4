// SPDX-License-Identifier: MIT
// bar1-size: BAR1 of every GeForce GPU covers its VRAM.
// A peer reaches VRAM only through BAR1, and drivers with P2P map all of it there once ("static BAR1"). 256 MiB,
// which guides call enough, is a window that the card's own driver moves: no peer can use it.
// Distinguishes a firmware setting, a driver option, a vBIOS without Resizable BAR or with only smaller sizes, and a
// card converted to 48 GB (by the driver's report), for which some builds map BAR1 piece by piece. Small windows above
// it do not fail: see bar1_room.hpp. Reads sysfs `resource`, configuration space, /proc/iomem and the kernel's log (as
// root), the catalogue, "nvidia-smi -q". Professional and data centre cards do not need it. Reference: PCI Express Base
// Specification, 7.8.6 (Resizable BAR); NVIDIA's kern_bus.c.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/probe.hpp"
#include "base/units.hpp"
#include "machine/boot/bar1_room.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/hardware/gpus.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kSmall = 256 * kMiB;  // BAR1 with firmware without Resizable BAR: less than any card's VRAM

/// Cause of the size of a BAR1, with its verdict.
struct Cause {
  std::string_view name;
  Verdict verdict;
  std::string_view says;
  std::string_view next;
};

// the first one that a machine has is the one to act on
constexpr std::array<Cause, 19> kCauses = {{
    {"lost", Verdict::unknown, "the card fell off the bus", "Power the machine off and on, then check again."},
    {"virtual_machine", Verdict::fail, "this virtual machine hides the bridges above the card",
     "Run p2pctl doctor on the host of this virtual machine: BAR1 is set there."},
    {"firmware", Verdict::fail, "the card supports enough, but the firmware gave its bus no room",
     "In the firmware setup (BIOS), turn on \"Above 4G Decoding\" and \"Resizable BAR\", and turn CSM off."},
    {"window", Verdict::fail, "the card supports enough, but the window of a bridge above is too small and shared",
     "In the firmware setup (BIOS), turn on \"Resizable BAR\", so that bridges are sized for it, or use another slot; "
     "check bridge-windows names the bridge."},
    {"refused", Verdict::fail, "the card supports enough, but Linux has tried, and found no space",
     "In the firmware setup (BIOS), turn on \"Above 4G Decoding\" and \"Resizable BAR\", and raise \"MMIO High Size\" "
     "where "
     "there is such a setting, or use another slot."},
    {"no_address", Verdict::fail, "the firmware found no address for it, and its bus has room",
     "Boot with \"pci=realloc\", so that Linux looks for an address where the firmware found none."},
    {"room_unknown", Verdict::unknown, "the card supports enough, but the room on its bus is not readable",
     "Run p2pctl doctor as root: only root can read /proc/iomem."},
    {"driver_option", Verdict::fail, "the card supports enough and its bus has room, but it was not resized",
     "Give the nvidia module the option NVreg_EnableResizableBar=1 and load it again."},
    {"vbios", Verdict::fail, "the card has no Resizable BAR capability: its vBIOS is too old", kUpdateVbios},
    {"vbios_sizes", Verdict::fail, "the chip supports enough, but its vBIOS offers only smaller sizes", kUpdateVbios},
    {"converted", Verdict::fail, "it was converted to more VRAM than its largest BAR1",
     "Use cards with the memory that their maker gave them."},
    {"unreadable", Verdict::fail, "the reason is not readable for this user",
     "Run p2pctl doctor as root: only root can read the reason."},
    {"bar1_unknown", Verdict::unknown, "the size of BAR1 is not readable",
     "Run p2pctl doctor as root, on a machine or record with sysfs."},
    {"vram_unknown", Verdict::unknown, "the VRAM of this model is not known",
     "Run p2pctl doctor as root, which shows the largest size of BAR1. If that is not enough, install the "
     "distribution's driver, which tells the VRAM: \"ubuntu-drivers install\", on Debian \"apt install "
     "nvidia-driver\"."},
    {"old_geforce", Verdict::not_applicable,
     "no driver gives P2P over BAR1 to GeForce cards older than the RTX 30 series", ""},
    {"not_needed", Verdict::not_applicable, "this card has P2P without a patched driver", ""},
    {"dynamic_bar1", Verdict::pass,
     "BAR1 has its largest size, and a build that may be used here maps it piece by piece", ""},
    {"largest", Verdict::pass, "that is the largest size of the card, whatever its VRAM", ""},
    {"covers", Verdict::pass, "BAR1 covers the VRAM", ""},
}};

/// GPU with the result of a resize of its BAR1.
struct Case : Bar1 {
  Bar1Room room;
  const CatalogueEntry* dynamic = nullptr;  ///< build that maps BAR1 of this converted card piece by piece; null: none
  const Cause* cause = nullptr;             ///< row of kCauses
  Verdict verdict = Verdict::unknown;       ///< of the cause, see verdict_of()

  bool may_be_dynamic() const { return dynamic != nullptr && dynamic->usable(); }
};

/// Obstacle to a sufficient size. Called only if there is such a size.
std::string_view who_stops(const Case& bar1) {
  switch (bar1.room.kind) {
    case Bar1Room::Kind::window: return "window";
    case Bar1Room::Kind::aperture: return "firmware";
    case Bar1Room::Kind::refused: return "refused";
    case Bar1Room::Kind::enough: return bar1.range->length == 0 ? "no_address" : "driver_option";
    case Bar1Room::Kind::unknown: break;
  }
  const auto has_room = [&](const PciDevice* port) {
    return prefetchable_window(*port).length > *bar1.goal_bytes();  // BAR3 is in this window, too
  };
  return std::ranges::all_of(bar1.above.ports, has_room) ? "driver_option" : "room_unknown";
}

std::string_view why_small(const Case& bar1) {
  if (!bar1.above.whole) return "virtual_machine";
  if (!bar1.gpu->extended_readable) return "unreadable";
  if (!bar1.resizable) return "vbios";
  const auto& sizes = bar1.resizable->supported_bytes;
  if (bar1.converted() && (sizes.empty() || sizes.back() < *bar1.vram_bytes()) && !bar1.may_be_dynamic())
    return "converted";
  const bool enough = bar1.vram_bytes() ? bar1.goal_bytes().has_value() : !sizes.empty() && sizes.back() > kSmall;
  if (!enough) return "vbios_sizes";
  if (bar1.goal_bytes() && *bar1.goal_bytes() <= bar1.range->length) return "dynamic_bar1";
  return bar1.goal_bytes() ? who_stops(bar1) : "firmware";
}

const Cause& cause_of(const Case& bar1) {
  const auto name = [&]() -> std::string_view {
    if (bar1.gpu->is_lost()) return "lost";
    if (!bar1.carries_p2p()) return is_old_geforce(*bar1.model) ? "old_geforce" : "not_needed";
    if (!bar1.range) return "bar1_unknown";
    if (bar1.covers_vram()) return "covers";
    if (!bar1.vram_bytes()) {
      if (!bar1.model || (!bar1.goal_bytes() && bar1.range->length > kSmall)) return "vram_unknown";
      if (bar1.goal_bytes() && bar1.range->length >= *bar1.goal_bytes()) return "largest";
    }
    return why_small(bar1);
  };
  return *std::ranges::find(kCauses, name(), &Cause::name);
}

nlohmann::json facts_of(const Case& bar1) {
  return {{"address", bar1.gpu->address},
          {"cause", bar1.cause->name},
          {"bar1_bytes", bar1.range ? nlohmann::json(bar1.range->length) : nlohmann::json()},
          {"vram_bytes", or_null(bar1.vram_bytes())}};
}

/// "0000:01:00.0 has 256 MiB of BAR1 for 24576 MiB of VRAM"
std::string sizes(const Bar1& bar1) {
  return fmt::format("{} has {} of BAR1 for {} of VRAM", bar1.gpu->address,
                     bar1.range ? mib(bar1.range->length) : "an unknown size",
                     bar1.vram_bytes() ? mib(*bar1.vram_bytes()) : "an unknown size");
}

/// Passes, with `attainable`, a size that Linux or the driver can still change.
Verdict verdict_of(const Cause& cause, bool attainable) {
  const bool resizable_here = cause.name == "no_address" || cause.name == "driver_option";
  return attainable && resizable_here ? Verdict::pass : cause.verdict;
}

/// Sets the verdict of the worst GPU, and the summary and next step of the cause to act on first.
void judge(Finding& finding, const std::vector<Case>& gpus) {
  for (const Verdict worse : {Verdict::not_applicable, Verdict::pass, Verdict::unknown, Verdict::fail})
    if (std::ranges::find(gpus, worse, &Case::verdict) != gpus.end()) finding.verdict = worse;
  const Case* first = nullptr;
  for (const Case& gpu : gpus)
    if (gpu.verdict == finding.verdict && (first == nullptr || gpu.cause < first->cause)) first = &gpu;
  const auto alike = std::ranges::count(gpus, first->cause, &Case::cause) - 1;
  finding.summary =
      fmt::format("{}{}: {}{}", sizes(*first), alike > 0 ? fmt::format(", and {} more like it", alike) : "",
                  first->cause->says, finding.verdict == Verdict::fail ? "; P2P over BAR1 maps all VRAM at once" : "");
  if (!finding.holds()) finding.next = first->cause->next;
  const auto build = std::ranges::find_if(gpus, [](const Case& gpu) { return gpu.dynamic != nullptr; });
  if (first->cause->name == "converted" && build != gpus.end())
    finding.next = fmt::format(
        "Builds with \"dynamic BAR1\" map it piece by piece: \"sudo p2pctl catalogue allow {}\" shows what is known of "
        "one.",
        build->dynamic->id);
}

/// True if fewer than two cards remain without converted ones for which no build exists.
bool too_few_left(const std::vector<Case>& gpus) {
  const auto too_small = std::ranges::count_if(gpus, [](const Case& gpu) {
    return gpu.cause->name == "converted" && gpu.dynamic == nullptr && !gpu.resizable->supported_bytes.empty();
  });
  const auto too_old = std::ranges::count_if(gpus, [](const Case& gpu) { return gpu.cause->name == "old_geforce"; });
  return too_small > 0 && std::ssize(gpus) - too_small - too_old < 2;
}

constexpr Parameter kParameters[] = {
    {"attainable", Parameter::Type::boolean, false, "pass where firmware, vBIOS and card allow it, resized or not yet"},
};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  if (nvidia_gpus(devices).empty()) return not_applicable("no NVIDIA GPU on the PCI bus");
  const std::vector<Bar1> found = bar1_of_gpus(host, devices, told_vram_bytes(host));
  const std::vector<Bar1Room> rooms = rooms_for_bar1(host, found);
  const bool converted = std::ranges::any_of(found, &Bar1::converted);
  const Catalogue all = converted ? TRY(catalogue(host)) : Catalogue();
  std::vector<Case> gpus;
  for (std::size_t i = 0; i < found.size(); ++i) {
    Case& gpu = gpus.emplace_back(Case{found[i], rooms[i]});
    if (gpu.converted()) gpu.dynamic = dynamic_bar1_build(all, {gpu.model->architecture});
    gpu.cause = &cause_of(gpu);
    gpu.verdict = verdict_of(*gpu.cause, parameters.value("attainable", false));
  }
  Finding finding;
  judge(finding, gpus);
  finding.impossible = finding.verdict == Verdict::fail && too_few_left(gpus);
  for (const Case& gpu : gpus) {
    const std::string& address = gpu.gpu->address;
    finding.facts["gpus"].push_back(facts_of(gpu));
    finding.saw(sysfs_path(address, "resource"), sizes(gpu));
    if (gpu.resizable && !gpu.resizable->supported_bytes.empty())
      finding.saw(pci_source(host) + ", Resizable BAR capability of " + address,
                  "largest size " + mib(gpu.resizable->supported_bytes.back()));
    if (gpu.verdict == Verdict::fail && gpu.above.whole && gpu.gpu->extended_readable)
      finding.in_the_way[address] =
          fmt::format("BAR1 does not cover its VRAM: {}. {}", gpu.cause->says, gpu.cause->next);
  }
  return finding;
}

}  // namespace

extern const Probe kBar1Size = {
    .id = "bar1-size",
    .asserts = "BAR1 of every GeForce GPU covers its VRAM",
    .parameters = kParameters,
    .check = check,
    .judges_each_gpu = true,
    .asks_driver = true,
    .skip_on_image = true,
};

}  // namespace p2pd
