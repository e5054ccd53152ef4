// SPDX-License-Identifier: MIT
// way-back: every package that a swap of the driver removes can be installed again, without network.
// A purged driver that cannot be restored leaves a machine without graphics and CUDA. So no package is removed before a
// .deb of each, its configuration, its marks and its alternatives are staged, and apt has shown that it
// would install them. This check verifies each again, by its SHA-256.
// Reads /var/lib/p2pd/way-back, dpkg's status, apt's marks. Runs nothing.
// Reference: apt-get(8); dpkg(1); update-alternatives(1).
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_update.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_runfile_needed(parameters)) return *finding;
  Finding finding;
  if (host.files().exists(kUpdateUnderWay)) {
    finding.set(Verdict::pass, "the packages are being upgraded; the package backup is complete");
    finding.saw(kUpdateUnderWay, "present");
    return finding;
  }
  const DriverPackages list = TRY(to_be_purged(host));
  if (list.empty()) {
    finding.set(Verdict::pass, "no package has a driver: none has to be backed up");
    finding.saw(kDpkgStatus, "no package of a driver");
    return finding;
  }
  const auto way = complete_package_backup(host, list);
  if (!way && !can_be_made(way.error())) return Failure(way.error());
  finding.facts["packages"] = list.ids();
  finding.saw(PackageBackup::kPath, way ? "each .deb as it was staged" : way.error().message);
  if (way)
    finding.set(Verdict::pass, fmt::format("{} packages can be installed again without network", way->packages.size()));
  else
    finding.set(
        Verdict::fail,
        fmt::format("{} packages of the driver could not be reinstalled: {}", list.purged.size(), way.error().message),
        way.error().next);
  return finding;
}

}  // namespace

extern const Probe kWayBack = {
    .id = "way-back",
    .asserts = "every package that is purged can be reinstalled without network",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
