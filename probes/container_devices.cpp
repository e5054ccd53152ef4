// SPDX-License-Identifier: MIT
// container-devices: the container runtimes' device specifications name the libraries of the installed driver.
// A specification of the Container Device Interface (CDI) lists files by their full names, including the version. After
// a driver swap each container that uses it fails: with a missing mount, or "Driver/library version mismatch".
// A container of Proxmox VE has libraries of its own, which nobody but its owner updates: a warning says so.
// Reads /etc/cdi/nvidia.yaml, /var/run/cdi/nvidia.yaml, the target of libcuda.so.1, /etc/pve/lxc, and the users of CDI:
// docker's and NVIDIA's container configuration. Without CDI the runtime finds libraries at each start.
// Reference: NVIDIA Container Toolkit, "Support for Container Device Interface".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/driver/proxmox.hpp"

namespace p2pd {
namespace {

/// Adds a warning that names the containers of Proxmox VE which are given GPUs.
void warn_of_containers(const Host& host, Finding& finding) {
  std::vector<std::string> names;
  for (const ProxmoxGuest& guest : proxmox_guests(host))
    if (guest.nvidia_files) names.push_back(guest.text());
  if (names.empty()) return;
  finding.saw("/etc/pve/lxc", fmt::format("{}", fmt::join(names, ", ")));
  finding.facts["warnings"].push_back(fmt::format(
      "{} {} the GPUs with NVIDIA libraries of {} own: when P2P is proven, install those of the host's driver in {}",
      fmt::join(names, ", "), names.size() == 1 ? "uses" : "use", names.size() == 1 ? "its" : "their",
      names.size() == 1 ? "it" : "each"));
}

Result<Finding> look_at_specifications(const Host& host) {
  const std::vector<std::string> files = cdi_files(host);
  const std::string asks = asks_for_cdi(host);
  if (!host.has_program("nvidia-ctk")) return not_applicable("NVIDIA's container toolkit is not installed");
  if (files.empty() && asks.empty()) return not_applicable("no container runtime uses CDI for GPUs");
  const std::string installed = TRY(installed_libcuda(host));
  if (installed.empty()) return not_applicable("no libcuda is installed for containers to use");
  Finding finding;
  finding.set(Verdict::pass, "containers use the libraries of " + installed);
  finding.facts = {{"installed", installed}};
  finding.saw("libcuda.so.1", installed);
  if (files.empty()) {
    finding.set(Verdict::fail, asks + " asks for CDI, and there is no specification");
    finding.saw(asks, "asks for CDI");
  }
  for (const std::string& file : files) {
    const std::set<std::string> versions = parse_cdi(TRY(host.files().read(file))).versions;
    const std::string names = versions.empty() ? "no driver" : fmt::format("{}", fmt::join(versions, " and "));
    finding.saw(file, names);
    if (versions != std::set{installed} && finding.verdict == Verdict::pass)
      finding.set(Verdict::fail, fmt::format("{} names {}; the installed driver is {}", file, names, installed));
  }
  return finding;
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding = TRY(look_at_specifications(host));
  warn_of_containers(host, finding);
  return finding;
}

}  // namespace

extern const Probe kContainerDevices = {
    .id = "container-devices",
    .asserts = "the CDI specifications are of the installed driver's version",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
