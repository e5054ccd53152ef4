// SPDX-License-Identifier: MIT
// container-devices: the container runtimes' device specifications name the libraries of the installed driver.
// A specification of the Container Device Interface (CDI) lists files by their full names, including the version. After
// a driver swap each container that uses it fails: with a missing mount, or "Driver/library version mismatch".
// Reads /etc/cdi/nvidia.yaml, /var/run/cdi/nvidia.yaml, the target of libcuda.so.1, and the users of CDI: docker's and
// NVIDIA's container configuration. Without CDI the runtime finds libraries at each start: no specification goes stale.
// Reference: NVIDIA Container Toolkit, "Support for Container Device Interface".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/driver/cdi.hpp"

namespace p2pd {
namespace {

Finding not_applicable(std::string summary) {
  Finding finding;
  finding.verdict = Verdict::not_applicable;
  finding.summary = std::move(summary);
  return finding;
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<std::string> files = cdi_files(host);
  const std::string asks = asks_for_cdi(host);
  if (!host.has_program("nvidia-ctk")) return not_applicable("NVIDIA's container toolkit is not installed");
  if (files.empty() && asks.empty()) return not_applicable("no container runtime uses CDI for GPUs");
  const std::string installed = TRY(installed_libcuda(host));
  if (installed.empty()) return not_applicable("no libcuda is installed for containers to use");
  Finding finding;
  finding.facts = {{"installed", installed}, {"specifications", nlohmann::json::array()}};
  finding.evidence.push_back({"libcuda.so.1", installed});
  if (files.empty()) {
    finding.summary = asks + " asks for CDI, and there is no specification";
    finding.evidence.push_back({asks, "asks for CDI"});
  }
  for (const std::string& file : files) {
    const std::set<std::string> versions = parse_cdi(TRY(host.files().read(file))).versions;
    finding.facts["specifications"].push_back({{"file", file}, {"versions", versions}});
    const std::string names = versions.empty() ? "no driver" : fmt::format("{}", fmt::join(versions, " and "));
    finding.evidence.push_back({file, names});
    if (versions != std::set{installed} && finding.summary.empty())
      finding.summary = fmt::format("{} names {}; the installed driver is {}", file, names, installed);
  }
  finding.verdict = finding.summary.empty() ? Verdict::pass : Verdict::fail;
  if (finding.summary.empty()) finding.summary = "containers use the libraries of " + installed;
  return finding;
}

}  // namespace

extern const Probe kContainerDevices;
const Probe kContainerDevices = {
    .id = "container-devices",
    .asserts = "the CDI specifications are of the installed driver's version",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
