// SPDX-License-Identifier: MIT
#include "base/packages/brought_packages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "base/log.hpp"
#include "base/packages/apt.hpp"
#include "base/packages/driver_packages.hpp"
#include "base/packages/package_locks.hpp"

namespace p2pd {
namespace {

using Names = std::vector<std::string>;
/// As apt names them, to how they go: "purge", or "remove" where configuration of them was there before.
using BroughtPackages = std::map<std::string, std::string>;

/// The package that apt calls `name`, which leaves out the native architecture; null: dpkg does not know it.
const DpkgPackage* find(const std::vector<DpkgPackage>& all, const std::string& name) {
  const auto dpkg = std::ranges::find(all, "dpkg", &DpkgPackage::name);
  const std::string native = dpkg == all.end() ? "amd64" : dpkg->architecture;
  const auto found = std::ranges::find_if(all, [&](const DpkgPackage& one) {
    return one.id() == name || (one.name == name && one.architecture == native);
  });
  return found == all.end() ? nullptr : &*found;
}

Result<BroughtPackages> read_list(const Host& host, std::string_view list) {
  BroughtPackages brought;
  if (!host.files().exists(list)) return brought;
  std::istringstream lines(TRY(host.files().read(list)));
  for (std::string how, package; lines >> how >> package;) brought[package] = how;
  return brought;
}

Result<void> write_list(Host& host, std::string_view list, const BroughtPackages& brought) {
  std::string text;
  for (const auto& [package, how] : brought) text += how + " " + package + "\n";
  TRY(host.will_change(list, Restore::by_action));
  TRY(host.create(list, text));
  return {};
}

Result<AptPlan> plan_of(const Host& host, const Names& names) {
  auto plan = simulated(host, bring_command(names));
  if (plan) return plan;
  return fail(plan.error().code, fmt::format("apt would not install {}: {}", fmt::join(names, " "), plan.error().message),
              plan.error().message.find("Unable to locate") != std::string::npos
                  ? "Add the repository that has it, run \"apt-get update\", then try again."
                  : "Settle with apt what it names, then try again.");
}

/// What installing brings that is not there; Error where it would do more than bring.
Result<BroughtPackages> to_be_brought(const Host& host, const Names& names) {
  const AptPlan plan = TRY(plan_of(host, names));
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  const std::string refused = fmt::format("{} not installed: apt would also ", fmt::join(names, " "));
  if (!plan.removes.empty())
    return fail(ErrorCode::invalid, fmt::format("{}remove {}", refused, fmt::join(plan.removes, ", ")),
                "Settle with apt what needs that, then try again.");
  BroughtPackages brought;
  for (const auto& [package, version] : plan.installs) {
    if (driver_role(package.substr(0, package.find(':'))) != DriverRole::none)
      return fail(ErrorCode::invalid, fmt::format("{}install {}, which belongs to a driver", refused, package),
                  "Take it from a repository whose packages need no driver.");
    const DpkgPackage* now = find(all, package);
    if (now != nullptr && now->present())
      return fail(ErrorCode::invalid,
                  fmt::format("{}change {} from {} to {}, which undo could not take back", refused, package,
                              now->version, version),
                  fmt::format("Run \"apt-get install --only-upgrade {}\", then try again.", package));
    brought[package] = now != nullptr && now->state == "config-files" ? "remove" : "purge";
  }
  return brought;
}

/// Those of `brought` that are to go now, as apt takes them.
Result<Names> those(const Host& host, const BroughtPackages& brought,
                    const std::function<bool(const DpkgPackage&, const std::string& how)>& go) {
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  Names ids;
  for (const auto& [name, how] : brought)
    if (const DpkgPackage* now = find(all, name); now != nullptr && go(*now, how)) ids.push_back(now->id());
  return ids;
}

/// Error where others would go with them.
Result<void> take_away(Host& host, const char* how, const Names& ids) {
  if (ids.empty()) return {};
  Command command = apt_get({"--allow-change-held-packages", "--no-install-recommends", how});
  command.argv.insert(command.argv.end(), ids.begin(), ids.end());
  TRY_IN("taking packages away", require_plan(TRY(simulated(host, command)), {}, ids));
  return change_packages(host, command);
}

}  // namespace

Command bring_command(const std::vector<std::string>& names) {
  Command command = apt_get({"--no-install-recommends", "install"});
  command.argv.insert(command.argv.end(), names.begin(), names.end());
  return command;
}

Result<void> bring_packages(Host& host, const std::vector<std::string>& names, std::string_view list) {
  TRY(wait_for_package_locks(host));
  TRY(host.will_change(kDpkgStatus, Restore::by_action));
  TRY(repair_packages(host, {}));
  BroughtPackages coming = TRY(to_be_brought(host, names));
  if (coming.empty()) return {};
  BroughtPackages brought = TRY(read_list(host, list));  // of an attempt that was killed: it saw what was there before
  brought.merge(coming);
  TRY(write_list(host, list, brought));
  log::info("installing {}: {} packages", fmt::join(names, " "), brought.size());
  return change_packages(host, bring_command(names));
}

Result<bool> bringing_was_interrupted(const Host& host, std::string_view list) {
  const BroughtPackages brought = TRY(read_list(host, list));
  if (brought.empty()) return false;
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  return std::ranges::any_of(brought, [&](const auto& one) {
    const DpkgPackage* now = find(all, one.first);
    return now == nullptr || !now->installed();
  });
}

Result<void> take_brought_packages_away(Host& host, std::string_view list) {
  const BroughtPackages brought = TRY(read_list(host, list));
  if (!brought.empty()) {
    TRY(wait_for_package_locks(host));
    TRY(repair_packages(host, {}));
    const auto present = [](const DpkgPackage& now, const std::string&) { return now.present(); };
    TRY(take_away(host, "remove", TRY(those(host, brought, present))));
    const auto left = [](const DpkgPackage& now, const std::string& how) {
      return now.state == "config-files" && how == "purge";
    };
    TRY(take_away(host, "purge", TRY(those(host, brought, left))));
  }
  return host.discard(list);
}

}  // namespace p2pd
