// SPDX-License-Identifier: MIT
// packaged-driver: purges the packages of the present driver, by an exact list, once the package backup is complete.
// One apt-get, simulated first: any change beyond the list is an error. An interrupted dpkg is repaired first, a lock
// is waited for, and a purge that was killed is continued. A leftover mark that stops NVIDIA's installer is
// removed. Removes the files of the packages; undo installs the packages from /var/lib/p2pd/way-back
// and restores files outside of them. Reference: apt-get(8); dpkg(1); machine/packages/package_backup.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/runfile_install.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};
constexpr std::string_view kRefusal = "/usr/lib/nvidia/alternate-install-present";

Command purge(const DriverPackages& list) {
  return apt_get({"--allow-change-held-packages", "--no-install-recommends", "purge"}, list.ids());
}

/// Removes the leftovers of a purge that was killed.
Result<void> sweep_up(Host& host) {
  if (!host.files().exists(PackageBackup::kPurging)) return {};
  TRY(discard_torn_modules(host, TRY(read_package_backup(host)).modules));
  return host.remove_tree(PackageBackup::kPurging);
}

Result<Description> describe(const Host& host, const Parameters&) {
  const DriverPackages list = TRY(to_be_purged(host));
  Description description;
  if (list.empty()) return description;
  std::vector<std::string> others, spared;
  for (const DriverPackages::Purged& one : list.purged)
    if (one.because != DriverPackages::Because::driver)
      others.push_back(fmt::format("{} ({})", one.package.id(), to_string(one.because)));
  for (const auto& [package, why] : list.spared) spared.push_back(package);
  description.loses = fmt::format("{} packages", list.purged.size());
  description.summary = "purge " + description.loses;
  if (!others.empty()) description.summary += fmt::format(", among them {}", fmt::join(others, ", "));
  if (!spared.empty()) description.summary += fmt::format("; {} stay", fmt::join(spared, ", "));
  description.notes.emplace_back("CUDA is unavailable from the purge to the end of apply");
  description.commands.push_back(purge(list).text());
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  DriverPackages list = TRY(to_be_purged(host));
  if (!list.blocked.empty())
    return fail(ErrorCode::state,
                fmt::format("{} must stay, and needs {}", list.blocked.front().package, list.blocked.front().why),
                "Remove it, or replace it with one that needs no driver package.");
  if (list.empty()) return sweep_up(host);
  const PackageBackup way = TRY_IN("not all packages could be reinstalled", complete_package_backup(host, list));
  TRY(wait_for_package_locks(host));
  TRY(host.will_change(kDpkgStatus, Restore::by_action));
  auto repaired = repair_packages(host, way.archives());
  // in an interrupted purge a package that cannot be configured is removed anyway
  const bool goes = host.files().exists(PackageBackup::kPurging);
  if (!repaired && !(goes && repaired.error().code == ErrorCode::command)) return repaired;
  list = TRY(to_be_purged(host));
  if (!list.empty()) {
    const AptPlan plan = TRY_IN("apt refuses to purge the driver", simulated(host, purge(list)));
    TRY_IN("purging the driver", require_plan(plan, {}, list.ids()));
    TRY(host.create(PackageBackup::kPurging));
    log::info("purging {} packages", list.purged.size());
    TRY(change_packages(host, purge(list)));
  }
  list = TRY(to_be_purged(host));
  if (!list.empty())
    return fail(ErrorCode::state, fmt::format("{} is still installed after the purge", fmt::join(list.ids(), ", ")),
                "Read /var/log/apt/term.log.");
  TRY(host.remove(kRefusal));
  return sweep_up(host);
}

/// Bytes of files that a runfile has installed: their undo precedes that of the purge.
std::uint64_t runfile_bytes(const Host& host) {
  const auto manifest = runfile_manifest(host);
  std::uint64_t bytes = 0;
  if (!manifest || !*manifest) return bytes;
  for (const RunfileManifest::Installed& one : (*manifest)->installed)
    if (const auto info = host.files().stat(one.path); info && one.target.empty())
      bytes += static_cast<std::uint64_t>(info->st_size);
  return bytes;
}

Result<void> prepare_undo(Host& host, const Parameters&) {
  return prepare_bring_back(host, false, runfile_bytes(host));
}

Result<void> undo(Host& host, const Parameters&) { return bring_back(host); }

}  // namespace

extern const Action kPackagedDriverAction = {
    .id = "packaged-driver",
    .topic = "packages",
    .does = "purges the packages of the present driver, once all of them could be reinstalled",
    .parameters = kParameters,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
