// SPDX-License-Identifier: MIT
// driver-update: upgrades the driver's packages to the newest offered version that the catalogue has modules for.
// One apt-get, simulated first: it may only install packages that the newer driver needs, and removes nothing. It
// ignores p2pd's own pins. Requires a package backup (way-back); undo installs the old packages from it and removes the
// new ones. Reference: apt-get(8); machine/packages/package_backup.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/action.hpp"
#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/driver/driver_update.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/package_backup.hpp"

namespace p2pd {
namespace {

/// "PACKAGE=VERSION" of each package that is upgraded; empty: nothing to do.
using Upgrade = std::vector<std::string>;

Upgrade wanted(const DriverUpdate& update) { return update.build.empty() ? Upgrade() : update.packages; }

/// Upgrade of an apt-get that was killed.
Result<Upgrade> interrupted(const Host& host) {
  Upgrade packages;
  std::istringstream lines(TRY(host.files().read(kUpdateUnderWay)));
  for (std::string line; std::getline(lines, line);) packages.push_back(line);
  return packages;
}

/// Error if apt would install a package that is not part of a driver.
Result<void> require_driver_only(const AptPlan& plan) {
  std::vector<std::string> others;
  for (const auto& [package, version] : plan.installs)
    if (driver_role(package.substr(0, package.find(':'))) == DriverRole::none) others.push_back(package);
  if (others.empty() && plan.removes.empty()) return {};
  others.insert(others.end(), plan.removes.begin(), plan.removes.end());
  return fail(ErrorCode::state, fmt::format("the newer driver would also change {}", fmt::join(others, ", ")),
              "Upgrade these by apt first, then try again.");
}

Result<Description> describe(const Host& host, const Parameters&) {
  const DriverUpdate update = TRY(driver_update(host));
  const Upgrade packages = wanted(update);
  Description description;
  if (packages.empty()) return description;
  description.summary =
      fmt::format("upgrade {} packages from {} to {}", packages.size(), update.installed, update.offered);
  description.commands.push_back(upgrade_command(packages).text());
  return description;
}

/// Records the packages to upgrade, after a check that they can be restored and that apt would do nothing else.
Result<Upgrade> begin(Host& host) {
  if (const std::string why = stale_lists(host); !why.empty()) TRY(refresh_lists(host, why));
  const DriverUpdate update = TRY(driver_update(host));
  Upgrade packages = wanted(update);
  if (packages.empty()) return packages;
  TRY_IN("not all packages could be reinstalled", complete_package_backup(host, TRY(driver_packages(host))));
  TRY(require_driver_only(TRY_IN("apt refuses to upgrade the driver", simulated(host, upgrade_command(packages)))));
  const auto fetched = fetch_archives(host, upgrade_command(packages));
  if (!fetched && blames_lists(fetched.error()))
    TRY(refresh_lists(host, "the archives no longer have the listed packages"));  // for the next attempt
  TRY(fetched);
  TRY(host.will_change(kDpkgStatus, Restore::by_action));
  TRY(host.will_change(kUpdateUnderWay, Restore::discarded));
  TRY(host.create(kUpdateUnderWay, fmt::format("{}\n", fmt::join(packages, "\n"))));
  log::info("upgrading {} packages from {} to {}", packages.size(), update.installed, update.offered);
  return packages;
}

Result<void> apply(Host& host, const Parameters&) {
  TRY(wait_for_package_locks(host));
  const bool resumed = host.files().exists(kUpdateUnderWay);
  const Upgrade packages = resumed ? TRY(interrupted(host)) : TRY(begin(host));
  if (packages.empty()) return {};
  if (resumed) TRY(forget_torn_dkms(host));  // otherwise a package of modules fails every time
  TRY(change_packages(host, upgrade_command(packages, resumed)));
  return host.remove_tree(kUpdateUnderWay);
}

Result<void> prepare_undo(Host& host, const Parameters&) { return prepare_bring_back(host, true); }

Result<void> undo(Host& host, const Parameters&) { return bring_back(host, true); }

}  // namespace

extern const Action kDriverUpdateAction = {
    .id = "driver-update",
    .topic = "packages",
    .does =
        "upgrades the driver's packages to the version that the distribution offers, where the catalogue has its "
        "modules",
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
