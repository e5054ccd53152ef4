// SPDX-License-Identifier: MIT
// packaged-driver: no package provides an NVIDIA driver, whole or in part.
// A runfile's driver and one of packages overwrite each other's files, and DKMS would build the packages' modules,
// which give no P2P, for every new kernel. The list of these packages is computed: the guides' ^nvidia-.* also matches
// the container toolkit and misses libcuda1, libnvidia-*, glx-alternative-* and linux-modules-nvidia-*.
// Reads dpkg's status, apt's marks, /var/lib/p2pd/way-back. Runs nothing.
// Reference: apt-get(8); deb-control(5); machine/packages/driver_packages.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_runfile_needed(parameters)) return *finding;
  const DriverPackages list = TRY(to_be_purged(host));
  Finding finding;
  finding.facts["packages"] = list.ids();
  for (const DriverPackages::Purged& one : list.purged)
    finding.saw(kDpkgStatus, fmt::format("{} {}: {}", one.package.id(), one.package.version, to_string(one.because)));
  if (list.empty() && host.files().exists(PackageBackup::kPurging)) {
    finding.set(Verdict::fail, "a purge was interrupted at its end");
    return finding;
  }
  if (list.empty()) {
    finding.set(Verdict::pass, "no package has an NVIDIA driver");
    return finding;
  }
  const auto count = [&](DriverPackages::Because because) {
    return std::ranges::count(list.purged, because, &DriverPackages::Purged::because);
  };
  finding.set(Verdict::fail, fmt::format("{} packages belong to a driver", count(DriverPackages::Because::driver)));
  if (const auto others = count(DriverPackages::Because::needs_it))
    finding.summary += fmt::format(", {} need it", others);
  if (const auto others = count(DriverPackages::Because::came_with_it))
    finding.summary += fmt::format(", {} came with it", others);
  if (list.blocked.empty()) return finding;
  const auto& [package, need] = list.blocked.front();
  finding.summary += fmt::format("; {} must stay, and needs {}", package, need);
  finding.next = fmt::format("Remove {} (\"apt-get remove {}\"), or replace it with one that needs no driver package.",
                             package, package);
  return finding;
}

}  // namespace

extern const Probe kPackagedDriver = {
    .id = "packaged-driver",
    .asserts = "no package has an NVIDIA driver",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
