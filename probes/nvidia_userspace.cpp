// SPDX-License-Identifier: MIT
// nvidia-userspace: libcuda and libnvidia-ml on disk are of exactly the version of the loaded kernel module.
// The module refuses any other ("API mismatch", "Driver/library version mismatch"). They diverge after an upgrade
// without a reboot, or with a runfile beside packages. The version is the end of the name of the target of
// libcuda.so.1. Reads the standard library directories, Debian's and NixOS's too, and /sys/module/nvidia/version;
// libraries elsewhere (containers, LD_LIBRARY_PATH) are not checked. Reference: NVIDIA driver README, "Installed
// Components".
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/driver/driver_libraries.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersionFile = "/sys/module/nvidia/version";
constexpr std::string_view kLibraries[] = {"libcuda.so.1", "libnvidia-ml.so.1"};

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  finding.facts = {{"module", nullptr}, {"libraries", nlohmann::json::array()}};
  if (!host.files().exists("/sys/module/nvidia")) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no NVIDIA kernel module is loaded";
    return finding;
  }
  const std::string module = TRY(host.line(kVersionFile));
  finding.facts["module"] = module;
  finding.evidence.push_back({std::string(kVersionFile), module});
  std::string missing, other, nameless;
  for (const std::string_view name : kLibraries) {
    const std::vector<DriverLibrary> found = driver_libraries(host, name);
    if (found.empty()) missing += (missing.empty() ? "" : " and ") + std::string(name);
    for (const DriverLibrary& library : found) {
      finding.facts["libraries"].push_back({{"file", library.link}, {"version", library.version}});
      finding.evidence.push_back({library.link, library.version});
      if (library.version.empty())
        nameless = library.link;
      else if (library.version != module && other.empty())
        other = library.link + " is " + library.version;
    }
  }
  finding.verdict = Verdict::fail;
  if (!other.empty()) {
    finding.summary = fmt::format("API mismatch: {}, the loaded module is {}", other, module);
    finding.next = "Reboot; if it stays, install libraries and modules of one version and remove the others.";
    return finding;
  }
  if (finding.facts["libraries"].empty())
    return fail(
        ErrorCode::not_found, "no libcuda.so.1 and no libnvidia-ml.so.1 in the standard library directories",
        "Install the driver's libraries; if they are elsewhere, compare them with " + std::string(kVersionFile) + ".");
  if (!nameless.empty()) return fail(ErrorCode::invalid, nameless + " leads to a file whose name has no version");
  if (!missing.empty()) {
    finding.summary = missing + " is not installed";
    finding.next = "Install the driver's libraries of version " + module + ".";
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.summary = "libraries and loaded module are both " + module;
  return finding;
}

}  // namespace

extern const Probe kNvidiaUserspace;
const Probe kNvidiaUserspace = {
    .id = "nvidia-userspace",
    .asserts = "the driver's libraries on disk are of the version of the loaded kernel module",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
