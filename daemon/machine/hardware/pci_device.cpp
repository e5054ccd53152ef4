// SPDX-License-Identifier: MIT
// Registers of a function's configuration space, and its base address registers in sysfs; libpci is in pci.cpp.
#include <fmt/format.h>
#include <linux/pci_regs.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::uint16_t kResizableBarId = 0x15;

template <class Number>
Number little_endian(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Number)) return static_cast<Number>(~Number{0});
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) number = static_cast<Number>((number << 8) | bytes[offset + i]);
  return number;
}

template <class Number>
std::optional<Number> hexadecimal(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string attribute(const PciDevice& device, std::string_view name) {
  return fmt::format("{}/{}/{}", kDevices, device.address, name);
}

/// Parses first address, last address, flags.
std::optional<PciRange> parse_resource(std::string_view line) {
  constexpr std::uint64_t kUnset = 0x20000000;  // IORESOURCE_UNSET: sized, but no address was found for it
  constexpr std::uint64_t kPrefetch = 0x2000;
  std::array<std::uint64_t, 3> fields{};
  for (std::uint64_t& field : fields) {
    const std::size_t end = line.find(' ');
    const auto number = hexadecimal<std::uint64_t>(line.substr(0, end));
    if (!number) return std::nullopt;
    field = *number;
    line = end == std::string_view::npos ? std::string_view() : line.substr(end + 1);
  }
  const auto [first, last, flags] = fields;
  const bool assigned = flags != 0 && (flags & kUnset) == 0 && last > first;
  return PciRange{first, assigned ? last - first + 1 : 0, (flags & kPrefetch) != 0};
}

/// Makes a range of `base` and `limit`, the upper bits of the first and the last MiB; a limit below the base: closed.
PciRange window(std::uint64_t base, std::uint64_t limit, bool prefetchable) {
  if (limit < base) return {0, 0, prefetchable};
  return {base << 16, ((limit - base) << 16) + 0x100000, prefetchable};
}

}  // namespace

void identify_lost(const Host& host, PciDevice& device) {
  const auto number = [&](std::string_view name) -> std::optional<std::uint32_t> {
    const auto line = host.line(attribute(device, name));
    return line ? hexadecimal<std::uint32_t>(*line) : std::nullopt;
  };
  device.vendor_id = static_cast<std::uint16_t>(number("vendor").value_or(device.vendor_id));
  device.device_id = static_cast<std::uint16_t>(number("device").value_or(device.device_id));
  device.class_code = number("class").value_or(device.class_code) & 0xffffffU;
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
  const std::string content = TRY(host.files().read(attribute(device, "resource"), kExtended));
  std::vector<PciRange> bars;
  for (std::string_view rest = content; bars.size() < 6 && !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const auto bar = parse_resource(rest.substr(0, end));
    if (!bar) break;
    bars.push_back(*bar);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return bars;
}

Result<std::uint64_t> pci_bar_bytes(const Host& host, const PciDevice& device, int bar) {
  const std::vector<PciRange> bars = TRY(pci_bars(host, device));
  if (std::cmp_less(bar, bars.size())) return bars[static_cast<std::size_t>(bar)].length;
  return fail(ErrorCode::invalid, fmt::format("{}: no three numbers for BAR {}", attribute(device, "resource"), bar));
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
  const auto capability = device.extended_capability(kResizableBarId);
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
    const std::string own = device.bus();
    const std::string below = fmt::format("{}:{:02x}", own.substr(0, own.rfind(':')), device.config[PCI_SECONDARY_BUS]);
    if (below > own) bridges_.emplace(below, &device);
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
  const std::size_t colon = bridge.address.find(':');
  if (bridge.config.size() < kConfigHeaderBytes || bus.compare(0, bus.rfind(':'), bridge.address, 0, colon) != 0)
    return false;
  const auto at = [&](std::size_t offset) { return fmt::format("{:02x}", bridge.config[offset]); };
  const std::string_view last = std::string_view(bus).substr(bus.rfind(':') + 1);
  return last >= at(PCI_SECONDARY_BUS) && last <= at(PCI_SUBORDINATE_BUS);
}

}  // namespace p2pd
