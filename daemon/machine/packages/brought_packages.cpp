// SPDX-License-Identifier: MIT
#include "machine/packages/brought_packages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "base/kept_state.hpp"
#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/toolchain.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

using Names = std::vector<std::string>;
/// Names of apt, and the way to remove each: "purge", "remove" if its configuration was there before, kUpgraded: never.
using BroughtPackages = std::map<std::string, std::string>;

constexpr const char* kUpgraded = "upgraded";

constexpr std::string_view kState = "/var/lib/p2pd";
constexpr const char* kOwn = "/packages";  // list of a run, in its directory below place_of()

std::string place_of(std::string_view list) { return fmt::format("{}.d", list); }

/// List of the change that is made or undone; `list` itself if an older p2pd had one for all runs.
std::string list_of_change(const Host& host, std::string_view list) {
  const std::string place = place_of(list), kept = kept_for_undo(host, place);
  return kept == place ? std::string(list) : kept + kOwn;
}

Command bring_command(const Names& names) { return apt_get({"--no-install-recommends", "install"}, names); }

/// Package that apt calls `name`, which leaves out the native architecture; null: dpkg does not know it.
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
  return fail(plan.error().code,
              fmt::format("apt refuses to install {}: {}", fmt::join(names, " "), plan.error().message),
              plan.error().message.find("Unable to locate") != std::string::npos
                  ? "Add the repository that has it, run \"apt-get update\", then try again."
                  : "Resolve that with apt, then try again.");
}

/// Checks that "Debian:12.9/stable, Debian-Security:12/stable-security" names the release of the running distribution.
bool is_of_release(const Distribution& system, const std::string& origins) {
  if (system.id.empty() || system.version.empty()) return false;
  std::istringstream list(origins);
  for (std::string origin; std::getline(list >> std::ws, origin, ',');) {
    const std::string label = origin.substr(0, origin.find(':'));
    const std::string version = origin.substr(std::min(label.size() + 1, origin.size()));
    if (::strncasecmp(label.c_str(), system.id.c_str(), system.id.size()) == 0 &&
        (version.starts_with(system.version + "/") || version.starts_with(system.version + ".")))
      return true;
  }
  return false;
}

struct Bringing {
  BroughtPackages brought;
  Names upgrades;  ///< "libc6 from 2.36-9 to 2.36-10"
  AptPlan plan;
};

/// New and upgraded packages of an installation; the Error names everything else that it would do.
Result<Bringing> to_be_brought(const Host& host, const Names& names) {
  Bringing out;
  out.plan = TRY(plan_of(host, names));
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  const Distribution system = distribution(host);
  Names objections, foreign;
  for (const std::string& package : out.plan.removes) objections.push_back("remove " + package);
  for (const auto& [package, version] : out.plan.installs) {
    const DpkgPackage* now = find(all, package);
    const bool changes = now != nullptr && now->present();
    if (driver_role(package.substr(0, package.find(':'))) != DriverRole::none) {
      objections.push_back(fmt::format("install {}, which belongs to a driver", package));
    } else if (changes && !is_of_release(system, out.plan.origins.at(package))) {
      objections.push_back(
          fmt::format("change {} from {} to {}, which this release does not have", package, now->version, version));
      foreign.push_back(package);
    } else if (changes) {
      out.brought[package] = kUpgraded;
      out.upgrades.push_back(fmt::format("{} from {} to {}", package, now->version, version));
    } else {
      out.brought[package] = now != nullptr && now->state == "config-files" ? "remove" : "purge";
    }
  }
  if (objections.empty()) return out;
  return fail(ErrorCode::invalid,
              fmt::format("{} not installed: apt would also {}", fmt::join(names, " "), fmt::join(objections, "; ")),
              foreign.size() == objections.size()
                  ? fmt::format("Run \"apt-get install --only-upgrade {}\", then try again.", fmt::join(foreign, " "))
                  : "Resolve that with apt, or take it from a repository whose packages need no driver.");
}

/// Tries once, with the lists that apt has.
Result<void> bring(Host& host, const Names& names, std::string_view list) {
  Bringing coming = TRY(to_be_brought(host, names));
  if (coming.brought.empty()) return {};
  TRY(need_room(host, kUsr, TRY(unpacked_bytes(host, coming.plan))));  // apt checks the space for archives only
  TRY(fetch_archives(host, bring_command(names)));
  BroughtPackages brought = TRY(read_list(host, list));  // packages of an earlier try, which saw what was there before
  brought.merge(coming.brought);
  TRY(write_list(host, list, brought));
  log::info("installing {}: {} packages", fmt::join(names, " "), brought.size());
  if (!coming.upgrades.empty()) log::info("upgrading {}", fmt::join(coming.upgrades, ", "));
  return change_packages(host, bring_command(names));
}

/// Packages of `brought` that `go` selects, in apt's form.
Result<Names> those(const Host& host, const BroughtPackages& brought,
                    const std::function<bool(const DpkgPackage&, const std::string& how)>& go) {
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  Names ids;
  for (const auto& [name, how] : brought)
    if (const DpkgPackage* now = find(all, name); now != nullptr && go(*now, how)) ids.push_back(now->id());
  return ids;
}

Command removal(const char* how, const Names& ids) {
  return apt_get({"--allow-change-held-packages", "--no-install-recommends", how}, ids);
}

/// Packages of `brought` that are to be removed.
Result<Names> to_be_removed(const Host& host, const BroughtPackages& brought) {
  return those(host, brought,
               [](const DpkgPackage& now, const std::string& how) { return now.present() && how != kUpgraded; });
}

/// Packages in the lists of all changes: undo of newer ones removes theirs first.
Result<BroughtPackages> all_brought(const Host& host) {
  BroughtPackages all;
  for (const std::string& name : host.names(kState)) {
    const std::string place = fmt::format("{}/{}", kState, name);
    for (const std::string& change : host.names(place))
      all.merge(TRY(read_list(host, fmt::format("{}/{}{}", place, change, kOwn))));
  }
  return all;
}

/// Removes packages; Error if others would be removed, too.
Result<void> take_away(Host& host, const char* how, const Names& ids) {
  if (ids.empty()) return {};
  const Command command = removal(how, ids);
  TRY_IN("taking packages away", require_plan(TRY(simulated(host, command)), {}, ids));
  return change_packages(host, command);
}

}  // namespace

Result<void> bring_packages(Host& host, const std::vector<std::string>& names, std::string_view list) {
  TRY(wait_for_package_locks(host));
  const std::string stale = stale_lists(host);
  if (!stale.empty()) TRY(refresh_lists(host, stale));  // precedes the repair, which may have to fetch, too
  TRY(host.will_change(kDpkgStatus, Restore::by_action));
  TRY(repair_packages(host, {}));
  const std::string own = TRY(begin_kept(host, place_of(list))) + kOwn;
  auto done = bring(host, names, own);
  if (done || !stale.empty() || !blames_lists(done.error())) return done;
  TRY(refresh_lists(host, "apt's package lists are insufficient"));
  return bring(host, names, own);
}

Result<void> describe_bringing(const Host& host, const std::vector<std::string>& names, Description& description) {
  if (names.empty()) return {};
  const bool stale = !stale_lists(host).empty();
  if (stale) description.commands.push_back(update_command().text());
  description.commands.push_back(bring_command(names).text());
  if (stale) return {};  // new dependencies are not known before
  const auto coming = to_be_brought(host, names);
  if (!coming && coming.error().code == ErrorCode::invalid) return Failure(coming.error());
  if (coming && !coming->upgrades.empty())
    description.summary += fmt::format("; upgrade {}", fmt::join(coming->upgrades, ", "));
  return {};
}

Result<bool> bringing_was_interrupted(const Host& host, std::string_view list) {
  const BroughtPackages brought = TRY(read_list(host, list_of_change(host, list)));
  if (brought.empty()) return false;
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  return std::ranges::any_of(brought, [&](const auto& one) {
    const DpkgPackage* now = find(all, one.first);
    return now == nullptr || !now->installed();
  });
}

std::vector<std::string> brought_packages(const Host& host, std::string_view path) {
  Names told;
  if (!path.ends_with(kOwn)) return told;
  for (const auto& [package, how] : read_list(host, path).value_or(BroughtPackages()))
    told.push_back(fmt::format("{} {}", package, how == kUpgraded ? how : "installed"));
  return told;
}

Result<void> prepare_taking_away(Host& host, std::string_view list) {
  const BroughtPackages brought = TRY(read_list(host, list_of_change(host, list)));
  if (brought.empty()) return {};
  TRY(check_packages_can_change(host));
  TRY(repair_packages(host, {}));
  const Names ids = TRY(to_be_removed(host, brought));
  if (ids.empty()) return {};
  AptPlan plan = TRY(simulated(host, removal("remove", ids)));
  for (const auto& [package, how] : TRY(all_brought(host)))
    if (how != kUpgraded && !brought.contains(package)) plan.removes.erase(package);
  TRY_IN("taking packages away", require_plan(plan, {}, ids));
  return {};
}

Result<void> take_brought_packages_away(Host& host, std::string_view list) {
  const std::string own = list_of_change(host, list);
  const BroughtPackages brought = TRY(read_list(host, own));
  if (!brought.empty()) {
    TRY(wait_for_package_locks(host));
    TRY(repair_packages(host, {}));
    for (const auto& [package, how] : brought)
      if (how == kUpgraded) log::info("{} stays at the version to which it was upgraded", package);
    TRY(take_away(host, "remove", TRY(to_be_removed(host, brought))));
    const auto left = [](const DpkgPackage& now, const std::string& how) {
      return now.state == "config-files" && how == "purge";
    };
    TRY(take_away(host, "purge", TRY(those(host, brought, left))));
  }
  if (own == list) TRY(host.remove_tree(list));
  return clear_kept(host, place_of(list));
}

}  // namespace p2pd
