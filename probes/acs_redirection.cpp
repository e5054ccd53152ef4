// SPDX-License-Identifier: MIT
// acs-redirection: no port at which the ways of two GPUs part sends their traffic up or blocks it.
// Access Control Services make a port send peer requests or completions up to the root complex, there and back over one
// uplink and through the IOMMU: NCCL hangs, same-switch copies halve. Only ports below which a pair parts matter;
// clearing others gives up isolation for nothing. Redirect: RR, CR, EC, the bits that Linux, too, calls redirection.
// Harmless there: SV, TB, DT, and UF, which only passes on what a lower port redirected. iommu=pt clears none of them.
// Reads configuration space beyond 256 bytes: root only.
// Reference: PCI Express Base Specification, 7.7.11; drivers/pci/p2pdma.c (pci_bridge_has_acs_redir).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/pcie_path.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

constexpr std::uint16_t kRedirects = kAcsRequestRedirect | kAcsCompletionRedirect | kAcsEgressControl;

constexpr std::array<std::pair<std::uint16_t, std::string_view>, 7> kBits = {{
    {0x01, "source_validation"},
    {0x02, "translation_blocking"},
    {kAcsRequestRedirect, "request_redirect"},
    {kAcsCompletionRedirect, "completion_redirect"},
    {kAcsUpstreamForwarding, "upstream_forwarding"},
    {kAcsEgressControl, "egress_control"},
    {kAcsDirectTranslated, "direct_translated"},
}};

/// A port at which pairs part.
struct Port {
  const PciDevice* device = nullptr;
  bool of_switch = false;
  int pairs = 0;

  bool readable() const { return device->extended_readable && !device->is_lost(); }
  std::uint16_t control() const { return readable() ? acs_control(*device).value_or(0) : std::uint16_t{0}; }
  bool redirects() const { return (control() & kRedirects) != 0; }
};

/// By address, so that what is named is named in the order of the bus.
std::map<std::string, Port> parting_ports(const Host& host, const std::vector<PciDevice>& devices,
                                          const std::vector<std::string>& gpus) {
  const auto paths = paths_between(host, devices, gpus);
  std::map<std::string, Port> ports;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = i + 1; j < paths.size(); ++j) {
      for (const std::string& address : paths[i][j].parting) {
        Port& port = ports[address];
        port.device = &*std::ranges::find(devices, address, &PciDevice::address);
        port.of_switch = port.of_switch || paths[i][j].kind == PathKind::pcie_switch;
        ++port.pairs;
      }
    }
  }
  return ports;
}

nlohmann::json facts_of(const Port& port) {
  nlohmann::json facts = {{"address", port.device->address},
                          {"kind", port.of_switch ? "switch" : "root"},
                          {"pairs", port.pairs},
                          {"control", nullptr},
                          {"redirecting", nullptr},
                          {"harmless", nullptr}};
  if (!port.readable()) return facts;
  facts["redirecting"] = facts["harmless"] = nlohmann::json::array();
  if (acs_control(*port.device)) facts["control"] = fmt::format("0x{:04x}", port.control());
  for (const auto& [bit, name] : kBits) {
    if ((port.control() & bit) != 0) facts[(bit & kRedirects) != 0 ? "redirecting" : "harmless"].push_back(name);
  }
  return facts;
}

std::string says(const Port& port) {
  if (!port.readable()) return "not readable beyond 256 bytes";
  if (!acs_control(*port.device)) return "no such capability";
  return fmt::format("control 0x{:04x}{}", port.control(), port.redirects() ? ", redirects" : "");
}

/// Addresses with `separator` between them.
std::string listed(const std::vector<const Port*>& ports, std::string_view separator) {
  std::string text;
  for (const Port* port : ports) text += (text.empty() ? "" : std::string(separator)) + port->device->address;
  return text;
}

void judge(Finding& finding, const std::map<std::string, Port>& ports) {
  std::vector<const Port*> redirecting, unreadable;
  bool of_switch = false;
  for (const auto& [address, port] : ports) {
    if (!port.readable()) unreadable.push_back(&port);
    if (port.redirects()) redirecting.push_back(&port);
    of_switch = of_switch || (port.redirects() && port.of_switch);
  }
  if (!redirecting.empty()) {
    finding.verdict = Verdict::fail;
    finding.summary = fmt::format("{} of {} ports at which GPU pairs part redirect peer traffic: {}",
                                  redirecting.size(), ports.size(),
                                  of_switch ? "it leaves the switch, up to the root port and back"
                                            : "it goes through the IOMMU, where there is one");
    finding.next = fmt::format(
        "Clear the redirection of these ports at each boot: boot with \"pci=disable_acs_redir={}\". Devices below them "
        "can then reach each other, so give none of them to a virtual machine.",
        listed(redirecting, ";"));
  } else if (!unreadable.empty()) {
    finding.summary = "ACS control is not readable for this user at " + listed(unreadable, ", ");
    finding.next = "Run p2pctl doctor as root: root can read it.";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = fmt::format("none of the {} ports at which GPU pairs part redirects", ports.size());
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  const std::map<std::string, Port> ports = parting_ports(host, devices, gpus);
  Finding finding;
  finding.facts["ports"] = nlohmann::json::array();
  finding.facts["redirecting"] = nlohmann::json::array();
  for (const auto& [address, port] : ports) {
    finding.facts["ports"].push_back(facts_of(port));
    if (port.redirects()) finding.facts["redirecting"].push_back(address);
    finding.evidence.push_back({pci_source(host) + ", ACS of " + address, says(port)});
  }
  if (ports.empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = gpus.size() < 2
                          ? "fewer than two NVIDIA GPUs on the PCI bus"
                          : "no port between the GPUs is visible here: a virtual machine has them on its host";
  } else {
    judge(finding, ports);
  }
  return finding;
}

}  // namespace

extern const Probe kAcsRedirection;
const Probe kAcsRedirection = {
    "acs-redirection", "no port at which the ways of two GPUs part redirects peer traffic", {}, nullptr, check, false};

}  // namespace p2pd
