// SPDX-License-Identifier: MIT
// pcie-links: every visible link between two GPUs supports more than Gen1; fewer lanes than both ends support are a
// warning with the cost: lanes that did not train (a riser, a bad seat, dirt) cost rate, and P2P works. A lower speed
// now is no fault: an idle GPU drops to Gen1, so p2p-bench judges the speed under load. A maximum of Gen1 is a fault,
// of a setting or a defect. A slot with fewer lanes than the card is a fact of the board, and so are MaxPayload,
// relaxed ordering, AtomicOps and the errors that a function has latched. Host bridges on the way are named, with what
// config/host-bridges.yaml knows of peer traffic through them; reports of wrong data are warnings. Reads configuration
// space (the PCI Express capability of each end, root only; AER) and sysfs aer_dev_correctable. Reference: PCI Express
// Base Specification, 7.5.3 (PCI Express capability), 7.8.4 (AER), 6.15 (AtomicOps).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/probe.hpp"
#include "machine/hardware/aer.hpp"
#include "machine/hardware/host_bridge.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd {
namespace {

constexpr std::uint8_t kExpressId = 0x10;
constexpr std::uint16_t kErrorsId = 0x01;

bool readable(const Link& link) { return link.width > 0 && link.width_most > 0; }
bool narrow(const Link& link) { return readable(link) && link.width < link.width_most; }
/// True if the link cannot leave Gen1, so that idling is not the reason.
bool never_faster(const Link& link) { return link.generation_most == 1; }
bool slow_now(const Link& link) { return link.generation > 0 && link.generation < link.generation_most; }

/// Links by their lower end, each once.
std::map<std::string, Link> links_of(const std::vector<std::vector<Path>>& paths) {
  std::map<std::string, Link> links;
  for (const auto& row : paths) {
    for (const Path& path : row) {
      for (const Link& link : path.links) links.emplace(link.address, link);
    }
  }
  return links;
}

nlohmann::json facts_of(const Link& link) {
  return {{"address", link.address},
          {"upper", link.upper.empty() ? nlohmann::json(nullptr) : nlohmann::json(link.upper)},
          {"generation", link.generation},
          {"generation_most", link.generation_most},
          {"width", link.width},
          {"width_most", link.width_most},
          {"raw_gb_s", raw_gb_s(link.generation_most, link.width)},
          {"raw_gb_s_most", raw_gb_s(link.generation_most, link.width_most)},
          {"max_payload_bytes", link.max_payload_bytes}};
}

nlohmann::json facts_of(const Path& path, const std::string& one, const std::string& other) {
  const auto least = std::ranges::min_element(path.links, {}, &Link::max_payload_bytes);
  return {{"gpus", {one, other}},
          {"kind", to_string(path.kind)},
          {"topology", path.topology.empty() ? nlohmann::json(nullptr) : nlohmann::json(path.topology)},
          {"raw_gb_s", path.raw_gb_s},
          {"payload_gb_s", path.payload_gb_s},
          {"max_payload_bytes", least == path.links.end() ? 0 : least->max_payload_bytes},
          {"arithmetic", path.arithmetic}};
}

/// AtomicOp bits of Device Capabilities 2 and Device Control 2; null for a capability of the first version.
nlohmann::json atomic_facts(const PciDevice& device, std::size_t express) {
  if ((device.word(express + 0x02) & 0xfU) < 2 || express + 0x2a > device.config.size()) return nullptr;
  const std::uint32_t can = device.dword(express + 0x24);
  const unsigned control = device.word(express + 0x28);
  return {{"routes", (can >> 6 & 1U) != 0},           {"completes_32_bit", (can >> 7 & 1U) != 0},
          {"completes_64_bit", (can >> 8 & 1U) != 0}, {"completes_128_bit", (can >> 9 & 1U) != 0},
          {"may_request", (control >> 6 & 1U) != 0},  {"blocks_egress", (control >> 7 & 1U) != 0}};
}

/// Errors that the kernel counted since boot: correctable ones, and replays among them; null if it counts none.
nlohmann::json counted_errors(const Host& host, const PciDevice& device) {
  auto counts = aer_counts(host, device.address, "correctable");
  if (!counts) return nullptr;
  return {{"correctable", (*counts)["TOTAL_ERR_COR"]}, {"replayed", (*counts)["Timeout"] + (*counts)["Rollover"]}};
}

/// Facts about a function at an end of a link, apart from the link; null if unreadable.
nlohmann::json end_facts(const Host& host, const PciDevice& device) {
  const auto at = device.is_lost() ? std::nullopt : device.capability(kExpressId);
  if (!at || *at + 0x0c > device.config.size()) return nullptr;
  const unsigned control = device.word(*at + 0x08);
  const unsigned status = device.word(*at + 0x0a);
  nlohmann::json facts = {{"relaxed_ordering", (control >> 4 & 1U) != 0},
                          {"max_read_request_bytes", (control >> 12 & 7U) <= 5 ? 128 << (control >> 12 & 7U) : 0},
                          {"atomics", atomic_facts(device, *at)},
                          {"errors",
                           {{"correctable", (status & 1U) != 0},
                            {"nonfatal", (status & 2U) != 0},
                            {"fatal", (status & 4U) != 0},
                            {"unsupported_request", (status & 8U) != 0}}},
                          {"aer", nullptr},
                          {"counted_errors", counted_errors(host, device)}};
  const auto aer = device.extended_capability(kErrorsId);
  if (!aer || *aer + 0x14U > device.config.size()) return facts;
  facts["aer"] = {{"uncorrectable", fmt::format("0x{:08x}", device.dword(*aer + 0x04U))},
                  {"correctable", fmt::format("0x{:08x}", device.dword(*aer + 0x10U))}};
  return facts;
}

nlohmann::json ends_facts(const Host& host, const std::vector<PciDevice>& devices,
                          const std::map<std::string, Link>& links) {
  auto facts = nlohmann::json::object();
  for (const auto& [address, link] : links) {
    for (const std::string& end : {link.address, link.upper}) {
      const auto device = std::ranges::find(devices, end, &PciDevice::address);
      if (device != devices.end()) facts[end] = end_facts(host, *device);
    }
  }
  return facts;
}

std::string says(const Link& link) {
  if (!readable(link)) return "not readable";
  return fmt::format("Gen{} x{} of Gen{} x{}", link.generation, link.width, link.generation_most, link.width_most);
}

/// "fewer lanes than both ends support: 0000:03:00.0 runs x8 of x16, 15.8 of 31.5 GB/s; reseat the card, or try another
/// slot ..."
std::string price_of(const std::vector<const Link*>& narrow_ones) {
  std::vector<std::string> prices;
  for (const Link* link : narrow_ones)
    prices.push_back(fmt::format("{} runs x{} of x{}, {:.1f} of {:.1f} GB/s", link->address, link->width,
                                 link->width_most, raw_gb_s(link->generation_most, link->width),
                                 raw_gb_s(link->generation_most, link->width_most)));
  return fmt::format("fewer lanes than both ends support: {}; reseat the card, or try another slot or riser",
                     fmt::join(prices, ", "));
}

void judge(Finding& finding, const std::map<std::string, Link>& links) {
  std::vector<const Link*> narrow_ones;
  std::vector<std::string> stuck;
  const Link* unreadable = nullptr;
  const Link* narrowest = nullptr;
  std::size_t slow = 0;
  for (const auto& [address, link] : links) {
    if (narrow(link)) narrow_ones.push_back(&link);
    if (never_faster(link)) stuck.push_back(address);
    if (!readable(link)) unreadable = &link;
    if (narrowest == nullptr || link.width < narrowest->width) narrowest = &link;
    slow += slow_now(link) ? 1U : 0U;
  }
  if (!stuck.empty()) {
    finding.verdict = Verdict::fail;
    finding.summary =
        fmt::format("an end of these links supports Gen1 at most, under load too: {}", fmt::join(stuck, ", "));
    finding.next = "In the firmware setup (BIOS), set the link speed of that slot to \"Auto\", or use another slot.";
  } else if (unreadable != nullptr || narrowest == nullptr) {
    finding.summary = unreadable == nullptr ? "no link between the GPUs is visible"
                                            : fmt::format("the link of {} is not readable", unreadable->address);
    finding.next =
        "Run p2pctl doctor as root. What root cannot read either fell off the bus: power the machine off and on.";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = narrow_ones.empty() ? fmt::format("{} links at their full width, the narrowest x{} at {}",
                                                        links.size(), narrowest->width, narrowest->address)
                                          : price_of(narrow_ones);
    if (!narrow_ones.empty()) finding.facts["warnings"] = {finding.summary};
  }
  if (slow > 0) finding.summary += fmt::format("; {} at a lower speed now, as idle GPUs do", slow);
}

/// "8086:a700 (Intel Raptor Lake-S)"
std::string name_of(const HostBridge& bridge) {
  return bridge.id + (bridge.name.empty() ? "" : fmt::format(" ({})", bridge.name));
}

/// Names the host bridges that pairs pass, with what is known of them.
void name_host_bridges(Finding& finding, const std::vector<PciDevice>& devices,
                       const std::vector<std::vector<Path>>& paths) {
  std::map<std::string, HostBridge> passed;
  std::set<std::string> listed, other;  // names of those that Linux lists for the way of every pair, and of the others
  for (std::size_t i = 0; i < paths.size(); ++i)
    for (std::size_t j = i + 1; j < paths.size(); ++j) {
      const std::vector<HostBridge> bridges = host_bridges_on(devices, paths[i][j]);
      for (const HostBridge& bridge : bridges) {
        const bool fits = bridge.listed == "yes" || (bridge.listed == "one-bridge" && bridges.size() == 1);
        (fits ? listed : other).insert(name_of(bridge));
        passed.emplace(bridge.address, bridge);
      }
    }
  std::set<std::string> warnings;
  finding.facts["host_bridges"] = nlohmann::json::array();
  for (const auto& [address, bridge] : passed) {
    finding.facts["host_bridges"].push_back(
        {{"address", address},
         {"id", bridge.id},
         {"name", bridge.name.empty() ? nlohmann::json() : nlohmann::json(bridge.name)},
         {"linux", bridge.listed.empty() ? "no" : bridge.listed},
         {"reports", bridge.reports}});
    for (const std::string& report : bridge.reports)
      warnings.insert(fmt::format("traffic between GPUs passes the host bridge {}: {}", name_of(bridge), report));
  }
  for (const std::string& text : warnings) finding.facts["warnings"].push_back(text);
  if (!listed.empty()) finding.summary += fmt::format("; host bridge {}", fmt::join(listed, ", "));
  if (!other.empty())
    finding.summary += fmt::format("; host bridge {}, not in Linux's list for peer traffic", fmt::join(other, ", "));
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  Finding finding;
  finding.facts = {{"links", nlohmann::json::array()}, {"pairs", nlohmann::json::array()}};
  if (gpus.size() < 2) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "fewer than two NVIDIA GPUs on the PCI bus";
    return finding;
  }
  const auto paths = paths_between(host, devices, gpus);
  const std::map<std::string, Link> links = links_of(paths);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.size(); ++j) {
      finding.facts["pairs"].push_back(facts_of(paths[i][j], gpus[i], gpus[j]));
    }
  }
  for (const auto& [address, link] : links) {
    finding.facts["links"].push_back(facts_of(link));
    finding.evidence.push_back({pci_source(host) + ", PCI Express capability of " + address, says(link)});
  }
  finding.facts["ends"] = ends_facts(host, devices, links);
  judge(finding, links);
  name_host_bridges(finding, devices, paths);
  return finding;
}

}  // namespace

extern const Probe kPcieLinks;
const Probe kPcieLinks = {
    .id = "pcie-links",
    .asserts = "every visible link between two GPUs can leave Gen1; fewer lanes than both ends support are a warning",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
