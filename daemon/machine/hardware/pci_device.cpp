// SPDX-License-Identifier: MIT
// Registers of a function's configuration space, and its base address registers in sysfs; libpci is in pci.cpp.
#include <fmt/format.h>
#include <linux/pci_regs.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

template <class Number>
Number little_endian(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Number)) return static_cast<Number>(~Number{0});
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) number = static_cast<Number>((number << 8) | bytes[offset + i]);
  return number;
}

/// Bus whose number is in this register of a bridge, "0000:01".
std::string bus_at(const PciDevice& bridge, std::size_t offset) {
  return fmt::format("{}:{:02x}", bridge.address.substr(0, bridge.address.find(':')), bridge.config[offset]);
}

/// Makes a range of `base` and `limit`, the upper bits of the first and the last MiB; a limit below the base: closed.
PciRange window(std::uint64_t base, std::uint64_t limit, bool prefetchable) {
  if (limit < base) return {0, 0, prefetchable};
  return {base << 16, ((limit - base) << 16) + 0x100000, prefetchable};
}

}  // namespace

std::string sysfs_path(std::string_view address, std::string_view file) {
  return fmt::format("{}/{}{}{}", kPciDevices, address, file.empty() ? "" : "/", file);
}

std::string PciDevice::id() const { return fmt::format("{:04x}:{:04x}", vendor_id, device_id); }

std::string PciDevice::bus() const { return address.substr(0, address.rfind(':')); }

bool PciDevice::is_emulated() const {
  constexpr std::array<std::uint16_t, 2> kVendors = {0x1b36, 0x15ad};
  constexpr std::array<std::uint32_t, 3> kModels = {0x80863420, 0x104c8232, 0x104c8233};  // QEMU's older ones
  const std::uint32_t model = static_cast<std::uint32_t>(vendor_id) << 16 | device_id;
  return std::ranges::count(kVendors, vendor_id) > 0 || std::ranges::count(kModels, model) > 0;
}

bool PciDevice::is_lost() const {
  return config.size() >= kConfigHeaderBytes && std::all_of(config.begin(), config.begin() + kConfigHeaderBytes,
                                                            [](std::uint8_t byte) { return byte == 0xff; });
}

std::uint16_t PciDevice::word(std::size_t offset) const { return little_endian<std::uint16_t>(config, offset); }

std::uint32_t PciDevice::dword(std::size_t offset) const { return little_endian<std::uint32_t>(config, offset); }

std::optional<std::size_t> PciDevice::capability(std::uint8_t id, std::size_t previous) const {
  constexpr int kMost = (kConventional - kConfigHeaderBytes) / 4;
  if (config.size() <= kConfigHeaderBytes || (config[PCI_STATUS] & PCI_STATUS_CAP_LIST) == 0) return std::nullopt;
  std::size_t offset = (previous == 0 ? config[PCI_CAPABILITY_LIST] : config[previous + 1]) & 0xfcU;
  for (int step = 0; step < kMost && offset >= kConfigHeaderBytes && offset + 2 <= config.size(); ++step) {
    if (config[offset] == id) return offset;
    offset = config[offset + 1] & 0xfcU;
  }
  return std::nullopt;
}

std::optional<std::uint16_t> PciDevice::extended_capability(std::uint16_t id) const {
  constexpr std::size_t kMost = (kExtended - kConventional) / 8;  // a header and a register each
  std::size_t offset = kConventional;
  for (std::size_t step = 0; step < kMost && offset >= kConventional && offset + 4 <= config.size(); ++step) {
    const std::uint32_t header = dword(offset);
    if (header == 0 || header == 0xffffffffU) break;
    if ((header & 0xffffU) == id) return static_cast<std::uint16_t>(offset);
    offset = (header >> 20) & ~std::size_t{3};
  }
  return std::nullopt;
}

std::vector<std::string> nvidia_gpus(const std::vector<PciDevice>& devices) {
  std::vector<std::string> gpus;
  for (const PciDevice& device : devices) {
    if (device.takes_part()) gpus.push_back(device.address);
  }
  return gpus;
}

Result<std::vector<PciRange>> pci_bars(const Host& host, const PciDevice& device) {
  constexpr std::uint64_t kUnset = 0x20000000;  // IORESOURCE_UNSET: sized, but no address was found for it
  constexpr std::uint64_t kPrefetch = 0x2000;
  std::istringstream lines(TRY(host.files().read(sysfs_path(device.address, "resource"), kExtended)));
  std::vector<PciRange> bars;
  for (std::uint64_t first, last, flags; bars.size() < 6 && lines >> std::hex >> first >> last >> flags;) {
    const bool assigned = flags != 0 && (flags & kUnset) == 0 && last > first;
    bars.push_back({first, assigned ? last - first + 1 : 0, (flags & kPrefetch) != 0});
  }
  return bars;
}

Result<std::uint64_t> pci_bar_bytes(const Host& host, const PciDevice& device, int bar) {
  const std::vector<PciRange> bars = TRY(pci_bars(host, device));
  if (std::cmp_less(bar, bars.size())) return bars[static_cast<std::size_t>(bar)].length;
  return fail(ErrorCode::invalid,
              fmt::format("{}: no three numbers for BAR {}", sysfs_path(device.address, "resource"), bar));
}

Result<std::map<std::string, std::uint64_t>> aer_counts(const Host& host, std::string_view address,
                                                        std::string_view severity) {
  std::istringstream lines(TRY(host.files().read(sysfs_path(address, fmt::format("aer_dev_{}", severity)), 4096)));
  std::map<std::string, std::uint64_t> counts;
  for (auto [name, count] = std::pair(std::string(), std::uint64_t{0}); lines >> name >> count;) counts[name] = count;
  return counts;
}

PciRange memory_window(const PciDevice& bridge) {
  return window(bridge.word(PCI_MEMORY_BASE) & 0xfff0U, bridge.word(PCI_MEMORY_LIMIT) & 0xfff0U, false);
}

PciRange prefetchable_window(const PciDevice& bridge) {
  constexpr unsigned kWide = 1;  // value of bits 0 to 3: 64-bit, the upper halves count
  std::uint64_t base = bridge.word(PCI_PREF_MEMORY_BASE) & 0xfff0U;
  std::uint64_t limit = bridge.word(PCI_PREF_MEMORY_LIMIT) & 0xfff0U;
  if ((bridge.word(PCI_PREF_MEMORY_BASE) & 0xfU) == kWide) {
    base |= std::uint64_t{bridge.dword(PCI_PREF_BASE_UPPER32)} << 16;
    limit |= std::uint64_t{bridge.dword(PCI_PREF_LIMIT_UPPER32)} << 16;
  }
  return window(base, limit, true);
}

std::optional<ResizableBar> resizable_bar(const PciDevice& device, int bar) {
  constexpr std::uint32_t kMostSizes = 28;  // capability bits 4 to 31: 1 MiB to 128 TiB
  const auto capability = device.extended_capability(PCI_EXT_CAP_ID_REBAR);
  if (!capability) return std::nullopt;
  const std::uint32_t bars = std::min((device.dword(*capability + 8U) >> 5) & 7U, 6U);
  for (std::uint32_t i = 0; i < bars; ++i) {
    const std::size_t entry = *capability + 4U + 8U * i;
    if (entry + 8 > device.config.size()) break;
    const std::uint32_t control = device.dword(entry + 4);
    if ((control & 7U) != static_cast<std::uint32_t>(bar)) continue;
    ResizableBar found;
    found.bytes = std::uint64_t{1} << (20 + std::min((control >> 8) & 0x3fU, 43U));
    for (std::uint32_t size = 0; size < kMostSizes; ++size) {
      if ((device.dword(entry) >> (size + 4) & 1U) != 0)
        found.supported_bytes.push_back(std::uint64_t{1} << (20 + size));
    }
    return found;
  }
  return std::nullopt;
}

int nvidia_bar1(const PciDevice& device) {
  constexpr std::uint32_t kMemory64 = 4;  // value of bits 0 to 2: not an I/O port, 64-bit
  return (device.dword(PCI_BASE_ADDRESS_0) & 7U) == kMemory64 ? 2 : 1;
}

PciTree::PciTree(const std::vector<PciDevice>& devices) {
  // Buses below a bridge have higher numbers than its own. A bridge that violates this is left out, which makes every
  // path up end.
  for (const PciDevice& device : devices) {
    if (!device.is_bridge() || device.is_lost() || device.config.size() < kConfigHeaderBytes) continue;
    const std::string below = bus_at(device, PCI_SECONDARY_BUS);
    if (below > device.bus()) bridges_.emplace(below, &device);
  }
}

PciTree::Way PciTree::above(const PciDevice& device) const {
  Way way;
  for (auto up = bridges_.find(device.bus()); up != bridges_.end(); up = bridges_.find(up->second->bus())) {
    if (up->second->is_emulated()) return way;
    way.ports.push_back(up->second);
  }
  way.whole = !way.ports.empty();
  return way;
}

bool PciTree::is_below(const PciDevice& bridge, const PciDevice& device) {
  const std::string bus = device.bus();
  return bridge.config.size() >= kConfigHeaderBytes && bus.size() == bridge.bus().size() &&
         bus >= bus_at(bridge, PCI_SECONDARY_BUS) && bus <= bus_at(bridge, PCI_SUBORDINATE_BUS);
}

}  // namespace p2pd
