// SPDX-License-Identifier: MIT
// acs-redirection: no port at which the paths of two GPUs diverge has ACS redirect, or blocks peer traffic.
// ACS redirect makes a port send peer requests or completions up to the root complex, in both directions over one
// uplink and through the IOMMU: NCCL hangs, same-switch copies halve. Only ports at which the paths of a pair diverge
// matter; clearing others gives up isolation needlessly. Redirect bits: RR, CR, EC, which Linux calls redirection, too.
// Harmless there: SV, TB, DT, and UF, which only forwards what a lower port redirected. iommu=pt clears none of them.
// Reads configuration space beyond 256 bytes (root only), /proc/cmdline, osrelease.
// Reference: PCI Express Base Specification, 7.7.11; drivers/pci/p2pdma.c (pci_bridge_has_acs_redir).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/probe.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd {
namespace {

std::string says(const AcsPort& port) {
  if (!port.readable) return "not readable beyond 256 bytes";
  if (!port.control) return "no such capability";
  return fmt::format("control 0x{:04x}{}", *port.control, port.redirects() ? ", redirects" : "");
}

/// Request to the running kernel to clear ACS redirect.
struct Asked {
  std::vector<std::string> ports;
  std::string release;  ///< of that kernel

  bool names(const AcsPort& port) const { return std::ranges::find(ports, port.address) != ports.end(); }
};

Asked asked_of(const Host& host) {
  return {ports_without_acs_redirect(parse_kernel_line(host.line("/proc/cmdline").value_or(""))),
          host.line("/proc/sys/kernel/osrelease").value_or("this kernel")};
}

std::string next_step(const std::vector<AcsPort>& ports, const Asked& asked, bool ignored) {
  if (ignored)
    return "Clear it with setpci after each boot, as \"p2pctl apply\" does, or boot Linux 6.12.23, 6.13.11, 6.14.2, "
           "6.15 or "
           "later, which clear what the firmware set.";
  std::string next = fmt::format(
      "Clear the redirection of these ports at each boot: boot with \"{}\". Devices below them "
      "can then reach each other, so give none of them to a virtual machine.",
      acs_argument(ports, asked.ports));
  if (may_keep_acs_redirect(asked.release))
    next += fmt::format(" Linux {} may leave what the firmware set: check it after the boot.", asked.release);
  return next;
}

/// `only`: of the ports that redirect, those alone that the running kernel was asked to clear (true), or the others.
void judge(Finding& finding, const std::vector<AcsPort>& ports, const Asked& asked, std::optional<bool> only) {
  std::vector<AcsPort> redirecting;
  std::ranges::copy_if(ports, std::back_inserter(redirecting),
                       [&](const AcsPort& port) { return port.redirects() && (!only || *only == asked.names(port)); });
  std::vector<std::string> unreadable;
  for (const AcsPort& port : ports)
    if (!port.readable) unreadable.push_back(port.address);
  if (!redirecting.empty()) {
    const auto of_switch = std::ranges::count_if(redirecting, &AcsPort::of_switch);
    const bool left = std::ranges::all_of(redirecting, [&](const AcsPort& port) { return asked.names(port); });
    finding.set(
        Verdict::fail,
        fmt::format("ACS redirect is enabled on {} of {} ports between the GPUs: {}", redirecting.size(), ports.size(),
                    of_switch == 0 ? "traffic goes through the IOMMU, where there is one"
                    : of_switch == std::ssize(redirecting)
                        ? "traffic leaves the switch, up to the root port and back"
                        : "traffic leaves the switches, and goes through the IOMMU, where there is one"),
        next_step(ports, asked, left));
    if (left) finding.summary += fmt::format("; Linux {} left it despite pci=disable_acs_redir", asked.release);
  } else if (!unreadable.empty()) {
    finding.set(Verdict::unknown,
                fmt::format("ACS control is not readable for this user at {}", fmt::join(unreadable, ", ")),
                "Run p2pctl doctor as root: root can read it.");
  } else {
    const char* others = std::ranges::none_of(ports, &AcsPort::redirects) ? ""
                         : *only                                          ? " despite the kernel's argument"
                                 : ", but for those that the kernel was asked to clear";
    finding.set(Verdict::pass, fmt::format("none of the {} ports between GPU pairs redirects{}", ports.size(), others));
  }
}

constexpr Parameter kParameters[] = {
    {"asked", Parameter::Type::boolean, false,
     "look only at ports that the running kernel was asked to clear (true), or only at others (false)"},
};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> gpus = nvidia_gpus(devices);
  const std::vector<AcsPort> ports = acs_ports(host, devices, gpus);
  if (ports.empty())
    return not_applicable(gpus.size() < 2
                              ? "fewer than two NVIDIA GPUs on the PCI bus"
                              : "no port between the GPUs is visible here: a virtual machine has them on its host");
  Finding finding;
  finding.facts["redirecting"] = nlohmann::json::array();
  for (const AcsPort& port : ports) {
    if (port.redirects()) finding.facts["redirecting"].push_back(port.address);
    finding.saw(pci_source(host) + ", ACS of " + port.address, says(port));
  }
  std::optional<bool> only;
  if (parameters.contains("asked")) only = parameters.at("asked").get<bool>();
  judge(finding, ports, asked_of(host), only);
  return finding;
}

}  // namespace

extern const Probe kAcsRedirection = {
    .id = "acs-redirection",
    .asserts = "no port between two GPUs redirects peer traffic",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
