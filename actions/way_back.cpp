// SPDX-License-Identifier: MIT
// way-back: stages a package backup, from which the packages of the present driver can be installed without network.
// Has a .deb of each at exactly the installed version: from apt's cache, from the archives, or rebuilt from the
// installed files; their current configuration, marks of apt and dpkg, alternatives, links to units. Then apt
// simulates the installation from those files alone, on a copy of dpkg's status without them. The backup gets its name
// only after that. Writes /var/lib/p2pd/way-back, readable by root alone. Undo removes it, after the steps that need
// it, and restores the backup of the run before. Reference: apt-get(8), download and --simulate; deb(5);
// deb-systemd-helper(1p).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/action.hpp"
#include "base/kept_state.hpp"
#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};
constexpr std::uint64_t kRoomBytes = std::uint64_t{3}
                                     << 29;  // 0.4 GB of packages; the same again, unpacked, temporarily

Result<Description> describe(const Host& host, const Parameters&) {
  const DriverPackages list = TRY(to_be_purged(host));
  Description description;
  description.summary = fmt::format("back up {} packages", list.purged.size());
  if (!list.empty())
    description.commands.push_back(
        fmt::format("apt-get download {}    # into {}/debs; else from the cache, or built again",
                    fmt::join(list.ids(), " "), PackageBackup::kPath));
  return description;
}

/// Simulates an installation with the packages removed: Error unless apt installs the staged files and nothing else.
Result<void> rehearse(Host& host, const PackageBackup& way) {
  const std::string status = TRY(dpkg_status_text(host));
  std::string without;
  for (const Paragraph& one : TRY(parse_paragraphs(status, {"package", "architecture"}))) {
    const bool goes = std::ranges::any_of(way.packages, [&](const StagedDeb& package) {
      return package.name == one.value("package") && package.architecture == one.value("architecture");
    });
    if (!goes) without += std::string(one.text) + "\n";
  }
  const std::string copy = way.directory + "/status";
  TRY(host.create(copy, without));
  Command install = install_from(way);
  install.argv.insert(install.argv.begin() + 1, "-oDir::State::status=" + copy);
  const AptPlan plan = TRY_IN("apt cannot reinstall the staged packages", simulated(host, install));
  std::vector<std::string> ids;
  for (const StagedDeb& package : way.packages) ids.push_back(package.id());
  TRY_IN("with the packages removed, and only the staged ones", require_plan(plan, ids, {}));
  return host.remove_tree(copy);
}

/// Gives the backup its name. A backup of an earlier run is kept, because its undo needs it.
Result<void> put_in_place(Host& host, const std::string& scratch) {
  const std::string kept = TRY(begin_kept(host, PackageBackup::kBefore)), earlier = kept + "/way-back",
                    none = kept + "/none";
  TRY(host.will_change(PackageBackup::kPath, Restore::by_action));
  if (host.files().exists(earlier) || host.files().exists(none))
    TRY(host.remove_tree(PackageBackup::kPath));  // the backup of this run
  else if (host.files().exists(PackageBackup::kPath))
    TRY(host.move(PackageBackup::kPath, earlier));
  else
    TRY(host.create(none));
  return host.move(scratch, PackageBackup::kPath);
}

Result<void> stage(Host& host, const DriverPackages& list, const std::string& scratch) {
  TRY(host.run({{"chmod", "0700", scratch}, {}, {}}));
  PackageBackup way;
  way.directory = scratch;
  way.packages = TRY(stage_debs(host, list, scratch + "/debs"));
  TRY(keep_beside_debs(host, list, way));
  TRY(rehearse(host, way));
  TRY(host.create(scratch + "/manifest.json", to_json_text(way)));
  return put_in_place(host, scratch);
}

Result<void> apply(Host& host, const Parameters&) {
  const DriverPackages list = TRY(to_be_purged(host));
  if (list.empty() || complete_package_backup(host, list)) return {};
  if (host.files().exists(PackageBackup::kPurging))
    return fail(ErrorCode::state, "the packages are being purged, and their staged copies are damaged",
                "Install the driver's packages again by apt, then try again.");
  for (const DriverPackages::Purged& one : list.purged)
    if (one.package.flag != "ok" || !one.package.installed())
      return fail(ErrorCode::state, fmt::format("{} is {}: dpkg was interrupted", one.package.id(), one.package.state),
                  "Run \"dpkg --configure -a\", then \"apt-get --fix-broken install\".");
  TRY(wait_for_package_locks(host));
  TRY(need_room(host, PackageBackup::kPath, kRoomBytes));
  const std::string scratch = unfinished(PackageBackup::kPath);
  TRY(host.will_change(scratch, Restore::discarded));
  TRY(host.remove_tree(scratch));
  TRY(host.make_directory(scratch));
  const auto staged = stage(host, list, scratch);
  const auto cleared = host.remove_tree(scratch);
  return staged ? cleared : staged;
}

/// Restores the backup of the run before. Can be repeated after a kill: a kept backup is moved back, not copied.
Result<void> undo(Host& host, const Parameters&) {
  const std::string kept = kept_for_undo(host, PackageBackup::kBefore), earlier = kept + "/way-back";
  const bool had_one = host.files().exists(earlier);
  if (had_one || host.files().exists(kept + "/none")) TRY(host.remove_tree(PackageBackup::kPath));
  if (had_one) TRY(host.move(earlier, PackageBackup::kPath));
  return clear_kept(host, PackageBackup::kBefore);
}

}  // namespace

extern const Action kWayBackAction = {
    .id = "way-back",
    .topic = "packages",
    .does = "stages a backup that can reinstall the packages of the present driver without network",
    .parameters = kParameters,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
    .undo = undo,
};

}  // namespace p2pd
