// SPDX-License-Identifier: MIT
#include "machine/hardware/pci_address.hpp"

#include <algorithm>
#include <regex>
#include <set>

namespace p2pd {
namespace {

/// Domain, bus, device and function. One without a domain has a function: "10:11" may be anything.
constexpr const char* kAddress = R"((?=(?:0x)?[0-9a-f]{4}|[0-9a-z]{2,4}:[0-9a-z]{2,4}\.[0-7]))"
                                 R"((?:(?:0x)?([0-9a-f]{4,8}):)?(?:0x)?([0-9a-f]{2}):(?:0x)?([01][0-9a-f]))"
                                 R"((?:\.([0-7])(?![0-9a-z])|(?!\.[0-7]|[0-9a-z])))";

using Found = std::match_results<std::string_view::const_iterator>;

PciAddress address_of(const Found& found) {
  const auto number = [&](std::size_t group) {
    return found[group].matched ? std::optional(static_cast<std::uint32_t>(std::stoul(found.str(group), nullptr, 16)))
                                : std::nullopt;
  };
  return {number(1), *number(2), *number(3), number(4)};
}

std::optional<PciAddress> first_address(std::string_view message) {
  // not within a word, number or time; "PCI:" may precede it
  static const std::regex kFirst(std::string("(?:^|[^0-9a-z.:]|(?:^|[^0-9]):)") + kAddress, std::regex::icase);
  Found found;
  return std::regex_search(message.begin(), message.end(), found, kFirst) ? std::optional(address_of(found))
                                                                          : std::nullopt;
}

}  // namespace

bool PciAddress::names(const PciAddress& other) const {
  return (!domain || domain == other.domain) && bus == other.bus && device == other.device &&
         (!function || function == other.function);
}

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  static const std::regex kWhole(kAddress, std::regex::icase);
  Found found;
  return std::regex_match(text.begin(), text.end(), found, kWhole) ? std::optional(address_of(found)) : std::nullopt;
}

std::optional<PciAddress> blamed_device(std::string_view message) {
  constexpr std::string_view kPassedOn = " received";
  const std::size_t at = message.find(kPassedOn);
  if (at != std::string_view::npos && message.substr(0, at).find(": AER: ") != std::string_view::npos)
    if (const auto behind = first_address(message.substr(at))) return behind;
  return first_address(message);
}

GpuFunctions::GpuFunctions(const std::vector<PciDevice>& all, const std::vector<std::string>& gpus) {
  std::set<std::string> ours(gpus.begin(), gpus.end());
  const PciTree tree(all);
  for (const PciDevice& device : all) {
    const bool given = std::ranges::count(gpus, device.address) > 0;
    all_gpus_ = all_gpus_ && (given || !device.is_nvidia_gpu());
    if (!given) continue;
    for (const PciDevice* port : tree.above(device).ports) ours.insert(port->address);
  }
  const auto add = [](std::vector<PciAddress>& functions, const std::string& address) {
    if (const auto parsed = parse_pci_address(address)) functions.push_back(*parsed);
  };
  for (const std::string& address : ours) add(ours_, address);
  for (const PciDevice& device : all)
    if (!ours.contains(device.address)) add(others_, device.address);
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
