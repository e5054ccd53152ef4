// SPDX-License-Identifier: MIT
// Newer packaged drivers. Reference: apt-cache(8), policy; apt-get(8); apt_preferences(5).
#include "machine/driver/driver_update.hpp"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "base/version.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

/// apt's candidate of each installed package of the driver's version, by package id, where it is another package
/// version; those for one kernel follow the kernel.
Result<std::map<std::string, std::string>> candidates(const Host& host, const std::string& version) {
  Command policy{{"apt-cache", "-oDir::Etc::PreferencesParts=/dev/null", "policy"}};
  const std::size_t without = policy.argv.size();
  for (const DriverPackages::Purged& one : TRY(driver_packages(host)).purged)
    if (driver_version(one.package.name, one.package.version) == version) policy.argv.push_back(one.package.id());
  std::map<std::string, std::string> found;
  if (policy.argv.size() == without) return found;
  std::istringstream lines(TRY(host.output_of(policy)));
  constexpr std::string_view kInstalled = "  Installed: ", kCandidate = "  Candidate: ";
  std::string package, installed;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != ' ' && line.ends_with(':')) package = line.substr(0, line.size() - 1);
    if (line.starts_with(kInstalled)) installed = line.substr(kInstalled.size());
    if (line.starts_with(kCandidate) && line.substr(kCandidate.size()) != installed)
      found[package] = line.substr(kCandidate.size());
  }
  return found;
}

bool is_newer(const std::string& version, const std::string& than) {
  const auto left = parse_version(version), right = parse_version(than);
  return left && right && *left > *right;
}

/// Newest version of a driver among the packages that would be installed; empty: it cannot be found out.
std::string version_that_comes(const Host& host, const std::vector<std::string>& packages) {
  std::string newest;
  const Result<AptPlan> plan = simulated(host, upgrade_command(packages));
  if (!plan) return {};
  for (const auto& [package, its_version] : plan->installs) {
    const std::string version = driver_version(package.substr(0, package.find(':')), its_version);
    if (newest.empty() || is_newer(version, newest)) newest = version;
  }
  return newest;
}

}  // namespace

Command upgrade_command(const std::vector<std::string>& packages, bool resumed) {
  Command command = apt_get({"-oDir::Etc::PreferencesParts=/dev/null", "--allow-change-held-packages", "--no-remove",
                             "--no-install-recommends", "install"});
  if (resumed) command.argv.push_back("--fix-broken");
  command.argv.insert(command.argv.end(), packages.begin(), packages.end());
  return command;
}

Result<DriverUpdate> driver_update(const Host& host) {
  const Catalogue all = TRY(catalogue(host));
  Machine machine = TRY(machine_of(host, all));
  DriverUpdate update;
  if (!machine.packages.can_stay()) return update;
  update.installed = machine.packages.version;
  const std::map<std::string, std::string> offers = TRY(candidates(host, update.installed));
  std::string newest = update.installed;
  for (const auto& [package, candidate] : offers)
    if (const std::string version = driver_version(package, candidate); is_newer(version, newest)) newest = version;
  for (const auto& [package, candidate] : offers)
    if (driver_version(package, candidate) == newest)
      update.packages.push_back(fmt::format("{}={}", package, candidate));
  if (update.packages.empty()) return update;
  if (const std::string version = version_that_comes(host, update.packages); is_newer(version, newest))
    newest = version;
  if (newest == update.installed) return update;  // built anew
  update.offered = newest;
  machine.packages.version = update.offered;
  const Choice choice = choose_driver(all, machine);
  if (choice.entry != nullptr && choice.keeps_packages) update.build = choice.entry->id;
  return update;
}

}  // namespace p2pd
