// SPDX-License-Identifier: MIT
// Console of the firmware. Reference: struct screen_info, include/uapi/linux/screen_info.h of Linux.
#include "machine/hardware/console.hpp"

#include "base/units.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kFramebuffers = "/sys/class/graphics/";

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

BootFramebuffer boot_framebuffer(const Host& host) {
  constexpr std::size_t kType = 0x0f, kBase = 0x18, kCapabilities = 0x36, kUpperBase = 0x3a, kEnd = 0x3e;
  constexpr unsigned kText = 1, kUefi = 0x70, kHas64Bits = 1U << 1;
  const std::string data = host.files().read(kBootParameters, 1U << 16).value_or("");
  if (data.size() < kEnd) return {};
  const auto byte = [&](std::size_t at) { return std::uint64_t{static_cast<unsigned char>(data[at])}; };
  const auto dword = [&](std::size_t at) {
    return byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
  };
  if (byte(kType) <= kText) return {};
  const std::uint64_t upper = (dword(kCapabilities) & kHas64Bits) != 0 ? dword(kUpperBase) << 32 : 0;
  return {dword(kBase) | upper, byte(kType) == kUefi ? "UEFI" : "VESA"};
}

/// Name of a framebuffer that belongs to no PCI function's driver; empty if there is none.
std::string platform_framebuffer(const Host& host) {
  for (const std::string& name : host.names(kFramebuffers)) {
    if (!name.starts_with("fb") || name == "fbcon") continue;
    const std::string path = host.files().read_link(std::string(kFramebuffers) + name + "/device").value_or("");
    const std::string device = path.substr(path.rfind('/') + 1);
    if (!device.empty() && host.files().exists("/sys/bus/pci/devices/" + device)) continue;
    return host.line(std::string(kFramebuffers) + name + "/name").value_or("");
  }
  return {};
}

}  // namespace

std::string firmware_console(const Host& host, const Bar1& gpu) {
  const bool boot_vga = host.line("/sys/bus/pci/devices/" + gpu.gpu->address + "/boot_vga").value_or("") == "1";
  std::string name = boot_vga ? platform_framebuffer(host) : "";
  if (!name.empty()) return name;
  const BootFramebuffer framebuffer = boot_framebuffer(host);
  return framebuffer.is_of(host, gpu) ? framebuffer.name : "";
}

}  // namespace p2pd
