// SPDX-License-Identifier: MIT
// Newer packaged drivers. Reference: apt-cache(8), policy; apt_preferences(5).
#include "machine/driver/driver_update.hpp"

#include <sstream>

#include "base/version.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

/// apt's candidate of each installed package of the driver's version, by package id; those for one kernel follow the
/// kernel.
Result<std::map<std::string, std::string>> candidates(const Host& host, const std::string& version) {
  Command policy{{"apt-cache", "-oDir::Etc::PreferencesParts=/dev/null", "policy"}};
  const std::size_t without = policy.argv.size();
  for (const DriverPackages::Purged& one : TRY(driver_packages(host)).purged)
    if (driver_version(one.package.name, one.package.version) == version) policy.argv.push_back(one.package.id());
  std::map<std::string, std::string> found;
  if (policy.argv.size() == without) return found;
  std::istringstream lines(TRY(host.output_of(policy)));
  constexpr std::string_view kCandidate = "  Candidate: ";
  std::string package;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != ' ' && line.ends_with(':')) package = line.substr(0, line.size() - 1);
    if (line.starts_with(kCandidate)) found[package] = line.substr(kCandidate.size());
  }
  return found;
}

bool is_newer(const std::string& version, const std::string& than) {
  const auto left = parse_version(version), right = parse_version(than);
  return left && right && *left > *right;
}

}  // namespace

Result<DriverUpdate> driver_update(const Host& host) {
  const Catalogue all = TRY(catalogue(host));
  Machine machine = TRY(machine_of(host, all));
  DriverUpdate update;
  if (!machine.packages.can_stay()) return update;
  update.installed = machine.packages.version;
  for (const auto& [package, candidate] : TRY(candidates(host, update.installed))) {
    const std::string version = driver_version(package, candidate);
    if (is_newer(version, update.offered.empty() ? update.installed : update.offered)) update.offered = version;
  }
  if (update.offered.empty()) return update;
  machine.packages.version = update.offered;
  const Choice choice = choose_driver(all, machine);
  if (choice.entry != nullptr && choice.keeps_packages) update.build = choice.entry->id;
  return update;
}

Result<std::map<std::string, std::string>> offered_packages(const Host& host, const DriverUpdate& update) {
  std::map<std::string, std::string> found = TRY(candidates(host, update.installed));
  std::erase_if(found, [&](const auto& one) { return driver_version(one.first, one.second) != update.offered; });
  return found;
}

}  // namespace p2pd
