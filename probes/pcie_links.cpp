// SPDX-License-Identifier: MIT
// pcie-links: every visible link between two GPUs supports more than Gen1; fewer lanes than both ends support are a
// warning with the cost: lanes that did not train (a riser, a bad seat, dirt) cost rate, and P2P works. A lower speed
// now is no fault: an idle GPU drops to Gen1, so p2p-bench judges the speed under load. A maximum of Gen1 is a fault,
// of a setting or a defect. A slot with fewer lanes than the card is a fact of the board, and so is MaxPayload. Host
// bridges on the way are named, with what config/host-bridges.yaml knows of peer traffic through them; reports of wrong
// data are warnings. Reads configuration space (the PCI Express capability of each end, root only). Reference: PCI
// Express Base Specification, 7.5.3.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/probe.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd {
namespace {

bool readable(const Link& link) { return link.width > 0 && link.width_most > 0; }
bool narrow(const Link& link) { return readable(link) && link.width < link.width_most; }
/// True if the link cannot leave Gen1, so that idling is not the reason.
bool never_faster(const Link& link) { return link.generation_most == 1; }
bool slow_now(const Link& link) { return link.generation > 0 && link.generation < link.generation_most; }

/// Links by their lower end, each once.
std::map<std::string, Link> links_of(const std::vector<std::vector<Path>>& paths) {
  std::map<std::string, Link> links;
  for (const auto& row : paths)
    for (const Path& path : row)
      for (const Link& link : path.links) links.emplace(link.address, link);
  return links;
}

nlohmann::json facts_of(const Link& link) {
  return {{"address", link.address},
          {"upper", or_null(link.upper)},
          {"generation", link.generation},
          {"generation_most", link.generation_most},
          {"width", link.width},
          {"width_most", link.width_most},
          {"max_payload_bytes", link.max_payload_bytes}};
}

nlohmann::json facts_of(const Path& path, const std::string& one, const std::string& other) {
  return {{"gpus", {one, other}},
          {"kind", to_string(path.kind)},
          {"topology", or_null(path.topology)},
          {"payload_gb_s", path.payload_gb_s}};
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
    finding.set(Verdict::fail,
                fmt::format("an end of these links supports Gen1 at most, under load too: {}", fmt::join(stuck, ", ")),
                "In the firmware setup (BIOS), set the link speed of that slot to \"Auto\", or use another slot.");
  } else if (unreadable != nullptr || narrowest == nullptr) {
    finding.set(
        Verdict::unknown,
        unreadable == nullptr ? "no link between the GPUs is visible"
                              : fmt::format("the link of {} is not readable", unreadable->address),
        "Run p2pctl doctor as root. What root cannot read either fell off the bus: power the machine off and on.");
  } else if (narrow_ones.empty()) {
    finding.set(Verdict::pass, fmt::format("{} links at their full width, the narrowest x{} at {}", links.size(),
                                           narrowest->width, narrowest->address));
  } else {
    finding.set(Verdict::pass, price_of(narrow_ones));
    finding.facts["warnings"] = {finding.summary};
  }
  if (slow > 0) finding.summary += fmt::format("; {} at a lower speed now, as idle GPUs do", slow);
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
        (fits ? listed : other).insert(bridge.text());
        passed.emplace(bridge.address, bridge);
      }
    }
  std::set<std::string> warnings;
  finding.facts["host_bridges"] = nlohmann::json::array();
  for (const auto& [address, bridge] : passed) {
    finding.facts["host_bridges"].push_back(
        {{"address", address}, {"id", bridge.id}, {"linux", bridge.listed.empty() ? "no" : bridge.listed}});
    for (const std::string& report : bridge.reports)
      warnings.insert(fmt::format("traffic between GPUs passes the host bridge {}: {}", bridge.text(), report));
  }
  for (const std::string& text : warnings) finding.facts["warnings"].push_back(text);
  if (!listed.empty()) finding.summary += fmt::format("; host bridge {}", fmt::join(listed, ", "));
  if (!other.empty())
    finding.summary += fmt::format("; host bridge {}, not in Linux's list for peer traffic", fmt::join(other, ", "));
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  if (gpus.size() < 2) return not_applicable("fewer than two NVIDIA GPUs on the PCI bus");
  Finding finding;
  finding.facts = {{"links", nlohmann::json::array()}};
  const auto paths = paths_between(host, devices, gpus);
  const std::map<std::string, Link> links = links_of(paths);
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = i + 1; j < gpus.size(); ++j)
      finding.facts["pairs"].push_back(facts_of(paths[i][j], gpus[i], gpus[j]));
  for (const auto& [address, link] : links) {
    finding.facts["links"].push_back(facts_of(link));
    finding.saw(pci_source(host) + ", PCI Express capability of " + address, says(link));
  }
  judge(finding, links);
  name_host_bridges(finding, devices, paths);
  return finding;
}

}  // namespace

extern const Probe kPcieLinks = {
    .id = "pcie-links",
    .asserts = "every visible link between two GPUs can leave Gen1; fewer lanes than both ends support are a warning",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
