// SPDX-License-Identifier: MIT
#include "machine/hardware/bar1.hpp"

#include <fmt/format.h>
#include <linux/screen_info.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/units.hpp"

namespace p2pd {
namespace {

/// Reads the range from sysfs; if a listing comes without it, the capability has the size and the register the address.
std::optional<PciRange> range_of(const Host& host, const Bar1& bar1) {
  const auto number = static_cast<std::size_t>(nvidia_bar1(*bar1.gpu));
  const auto bars = pci_bars(host, *bar1.gpu);
  if (bars && bars->size() > number) return (*bars)[number];
  if (!bar1.resizable) return std::nullopt;
  const std::size_t at = 0x10 + 4 * number;
  const std::uint64_t low = bar1.gpu->dword(at) & ~0xfU;
  return PciRange{low | std::uint64_t{bar1.gpu->dword(at + 4)} << 32, bar1.resizable->bytes, true};
}

/// Framebuffer as the boot loader handed it over.
struct BootFramebuffer {
  std::uint64_t address = 0;  ///< 0: there is none
  std::string name;           ///< "UEFI", "VESA"

  /// Addresses by which nvidia knows a console of its own: BAR1 begins with that of UEFI, VESA's is 16 MiB into BAR3.
  bool is_of(const Host& host, const Bar1& bar) const {
    const auto bars = pci_bars(host, *bar.gpu).value_or(std::vector<PciRange>());
    const auto bar3 = static_cast<std::size_t>(nvidia_bar1(*bar.gpu)) + 2;
    return address != 0 && ((bar.range && bar.range->length > 0 && address == bar.range->first) ||
                            (bars.size() > bar3 && bars[bar3].length > 0 && address == bars[bar3].first + 16 * kMiB));
  }
};

/// Reads it. Reference: struct screen_info, with which boot_params begins.
BootFramebuffer boot_framebuffer(const Host& host) {
  const std::string data = host.files().read(kBootParameters, 1U << 16).value_or("");
  screen_info screen{};
  if (data.size() < sizeof screen) return {};
  std::memcpy(&screen, data.data(), sizeof screen);
  constexpr unsigned kText = 1;
  if (screen.orig_video_isVGA <= kText) return {};
  const bool wide = (screen.capabilities & VIDEO_CAPABILITY_64BIT_BASE) != 0;
  return {screen.lfb_base | (wide ? std::uint64_t{screen.ext_lfb_base} << 32 : 0),
          screen.orig_video_isVGA == VIDEO_TYPE_EFI ? "UEFI" : "VESA"};
}

/// Name of a framebuffer that belongs to no PCI function's driver; empty if there is none.
std::string platform_framebuffer(const Host& host) {
  const std::string framebuffers = "/sys/class/graphics/";
  for (const std::string& name : host.names(framebuffers)) {
    if (!name.starts_with("fb") || name == "fbcon") continue;
    const std::string path = host.files().read_link(framebuffers + name + "/device").value_or("");
    const std::string device = path.substr(path.rfind('/') + 1);
    if (!device.empty() && host.files().exists(sysfs_path(device))) continue;
    return host.line(framebuffers + name + "/name").value_or("");
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> Bar1::vram_bytes() const { return p2pd::vram_bytes(model, told_bytes); }

bool Bar1::covers_vram() const { return range && vram_bytes() && range->length >= *vram_bytes(); }

std::optional<std::uint64_t> Bar1::goal_bytes() const {
  if (covers_vram()) return range->length;
  if (!vram_bytes()) {  // the largest size covers what a card is sold with
    const bool grows =
        resizable && !resizable->supported_bytes.empty() && resizable->supported_bytes.back() > 256 * kMiB;
    return grows ? std::optional(resizable->supported_bytes.back()) : std::nullopt;
  }
  if (!gpu->extended_readable) return std::bit_ceil(*vram_bytes());
  if (!resizable) return std::nullopt;
  const auto& sizes = resizable->supported_bytes;
  const auto enough = std::ranges::lower_bound(sizes, *vram_bytes());
  if (enough != sizes.end()) return *enough;
  return converted() && !sizes.empty() ? std::optional(sizes.back()) : std::nullopt;
}

bool Bar1::must_grow() const {
  return !gpu->is_lost() && carries_p2p() && range && goal_bytes() && !above.ports.empty() &&
         range->length < *goal_bytes();
}

std::vector<Bar1> bar1_of_gpus(const Host& host, const std::vector<PciDevice>& devices,
                               const std::map<std::string, std::uint64_t>& told_bytes) {
  const PciTree tree(devices);
  std::vector<Bar1> found;
  for (const PciDevice& device : devices) {
    if (!device.takes_part()) continue;
    Bar1 bar1;
    bar1.gpu = &device;
    bar1.above = tree.above(device);
    bar1.model = model_of(device.id());
    const auto told = told_bytes.find(device.address);
    if (told != told_bytes.end()) bar1.told_bytes = told->second;
    bar1.resizable = resizable_bar(device, nvidia_bar1(device));
    bar1.range = range_of(host, bar1);
    found.push_back(std::move(bar1));
  }
  return found;
}

std::string firmware_console(const Host& host, const Bar1& gpu) {
  const bool boot_vga = host.line(sysfs_path(gpu.gpu->address, "boot_vga")).value_or("") == "1";
  std::string name = boot_vga ? platform_framebuffer(host) : "";
  if (!name.empty()) return name;
  const BootFramebuffer framebuffer = boot_framebuffer(host);
  return framebuffer.is_of(host, gpu) ? framebuffer.name : "";
}

std::string mib(std::uint64_t bytes) { return fmt::format("{} MiB", bytes / kMiB); }

}  // namespace p2pd
