// SPDX-License-Identifier: MIT
#include "machine/hardware/pci_address.hpp"

#include <algorithm>
#include <charconv>

#include "machine/hardware/pcie_path.hpp"

namespace p2pd {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) { return is_decimal(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); }

/// Takes "01" or "0x01" off the front: `least` to `most` digits.
std::optional<std::uint32_t> take_number(std::string_view& rest, std::size_t least, std::size_t most) {
  std::string_view digits = rest;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  const auto count = static_cast<std::size_t>(end - digits.data());
  if (error != std::errc() || count < least || count > most) return std::nullopt;
  digits.remove_prefix(count);
  rest = digits;
  return number;
}

/// Removes an address from the front of `rest`.
std::optional<PciAddress> take_address(std::string_view& rest) {
  std::string_view left = rest;
  PciAddress address;
  std::string_view ahead = left;
  if (const auto domain = take_number(ahead, 4, 8); domain && ahead.starts_with(':')) {
    address.domain = *domain;
    left = ahead.substr(1);
  }
  const auto bus = take_number(left, 2, 2);
  if (!bus || !left.starts_with(':')) return std::nullopt;
  left.remove_prefix(1);
  const auto device = take_number(left, 2, 2);
  if (!device || *device > 0x1f) return std::nullopt;
  if (left.size() > 1 && left[0] == '.' && left[1] >= '0' && left[1] <= '7') {
    address.function = static_cast<std::uint32_t>(left[1] - '0');
    left.remove_prefix(2);
  }
  if (!address.domain && !address.function) return std::nullopt;  // "10:11" may be anything
  if (!left.empty() && is_alphanumeric(left.front())) return std::nullopt;
  address.bus = *bus;
  address.device = *device;
  rest = left;
  return address;
}

std::optional<PciAddress> first_address(std::string_view message) {
  for (std::size_t at = 0; at < message.size(); ++at) {
    if (at > 0 && (is_alphanumeric(message[at - 1]) || message[at - 1] == '.')) continue;
    if (at > 1 && message[at - 1] == ':' && is_decimal(message[at - 2]))
      continue;  // skips a time; "PCI:" may precede an address
    std::string_view rest = message.substr(at);
    if (const auto address = take_address(rest)) return address;
  }
  return std::nullopt;
}

}  // namespace

bool PciAddress::names(const PciAddress& other) const {
  return (!domain || domain == other.domain) && bus == other.bus && device == other.device &&
         (!function || function == other.function);
}

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  const auto address = take_address(text);
  return text.empty() ? address : std::nullopt;
}

std::optional<PciAddress> blamed_device(std::string_view message) {
  constexpr std::string_view kPassedOn = " received";
  const std::size_t at = message.find(kPassedOn);
  if (at != std::string_view::npos && message.substr(0, at).find(": AER: ") != std::string_view::npos)
    if (const auto behind = first_address(message.substr(at))) return behind;
  return first_address(message);
}

GpuFunctions::GpuFunctions(const std::vector<PciDevice>& all, const std::vector<std::string>& gpus)
    : all_gpus_(std::ranges::none_of(all, [&](const PciDevice& device) {
        return device.is_nvidia_gpu() && std::ranges::find(gpus, device.address) == gpus.end();
      })) {
  std::vector<std::string> addresses = gpus;
  const PciTree tree(all);
  for (const PciDevice& device : all)
    if (std::ranges::find(gpus, device.address) != gpus.end())
      for (const PciDevice* port : tree.above(device).ports) addresses.push_back(port->address);
  for (const std::string& address : addresses)
    if (const auto parsed = parse_pci_address(address)) ours_.push_back(*parsed);
  for (const PciDevice& device : all)
    if (std::ranges::find(addresses, device.address) == addresses.end())
      if (const auto parsed = parse_pci_address(device.address)) others_.push_back(*parsed);
}

bool GpuFunctions::hold(const PciAddress& address) const {
  const auto named = [&](const std::vector<PciAddress>& functions) {
    return std::ranges::any_of(functions, [&](const PciAddress& function) { return address.names(function); });
  };
  if (address.domain || !named(ours_)) return named(ours_);
  return std::ranges::none_of(others_,
                              [&](const PciAddress& other) { return other.domain == 0u && address.names(other); });
}

}  // namespace p2pd
