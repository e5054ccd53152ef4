// SPDX-License-Identifier: MIT
// driver-userspace: the libraries and programs of the chosen driver are installed, by packages that stay or by its
// runfile. Modules and user space must be of exactly one version. Packages stay if they have the chosen driver's
// version (`userspace: keep`); only NVIDIA's runfile exists for each version. A runfile records its files, which must
// all still exist. The newer installer removes an older runfile's driver itself: the fix saves it for the rollback; if
// it could not be restored completely, the result is unknown, so that nothing is changed. Reads /var/lib/nvidia/log,
// which only root may, and looks for its files; for an older driver, /var/lib/dkms/nvidia. Reference: backup.c of
// NVIDIA nvidia-installer.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/runfile_install.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};

Result<Finding> check_packages(const Host& host, const CatalogueEntry& entry) {
  const PackagedUserspace found = TRY(packaged_userspace(host));
  Finding finding;
  finding.facts = {{"entry", entry.id}, {"version", entry.base_version}, {"installed", found.version}};
  finding.saw(kDpkgStatus, found.version.empty() ? found.why_not : found.version);
  if (found.can_stay() && found.version == entry.base_version)
    finding.set(Verdict::pass, fmt::format("the installed packages of {} stay", found.version));
  else
    finding.set(Verdict::fail,
                fmt::format("the driver's packages cannot stay with modules of {}: {}", entry.base_version,
                            !found.why_not.empty()  ? found.why_not
                            : found.version.empty() ? "there are none"
                                                    : fmt::format("they are of {}", found.version)));
  return finding;
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  if (keeps_packages(parameters)) return check_packages(host, entry);
  const auto manifest = TRY(runfile_manifest(host));
  if (manifest && manifest->version != entry.base_version && !host.files().exists(kInstallerAtWork))
    TRY(older_runfile(host, *manifest));
  const std::string lacking = lacking_userspace(host, manifest, entry.base_version);
  Finding finding;
  finding.facts = {
      {"entry", entry.id}, {"version", entry.base_version}, {"installed", or_null(manifest ? manifest->version : "")}};
  finding.saw(fmt::format("{}/log", kInstalledByRunfile), manifest ? manifest->version : "not there");
  finding.set(lacking.empty() ? Verdict::pass : Verdict::fail,
              "the user space of " + entry.base_version + " is " +
                  (lacking.empty() ? "installed by its runfile" : "not installed: " + lacking));
  return finding;
}

}  // namespace

extern const Probe kDriverUserspace = {
    .id = "driver-userspace",
    .asserts =
        "the libraries and programs of the entry's version are installed, by packages that stay or by its runfile",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
