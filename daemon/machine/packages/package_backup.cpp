// SPDX-License-Identifier: MIT
#include "machine/packages/package_backup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/torn_dkms.hpp"
#include "machine/packages/apt.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kManifest = "/var/lib/p2pd/way-back/manifest.json";
constexpr std::string_view kNext = "Restore it from a backup, or install the driver's packages by hand.";

constexpr std::chrono::minutes kDeadline{10};  // long, for a machine under load: half a package backup is useless

constexpr std::string_view kAlternatives = "/var/lib/dpkg/alternatives";
constexpr std::string_view kUnits = "lib/systemd/system/";
constexpr std::string_view kUnitPlaces[] = {"/etc/systemd/system", "/var/lib/systemd/deb-systemd-helper-enabled",
                                            "/var/lib/systemd/deb-systemd-helper-masked"};

PackageBackup from_json(const Json& json) {
  PackageBackup way;
  for (const Json& row : json.at("packages"))
    way.packages.push_back({row.at("name"), row.at("architecture"), row.at("version"), row.at("deb"), row.at("sha256"),
                            row.at("from"), row.at("automatic"), row.at("held")});
  for (const auto& [name, list] : {std::pair{"kept", &way.kept},
                                   {"absent", &way.absent},
                                   {"units", &way.units},
                                   {"alternatives", &way.alternatives},
                                   {"modules", &way.modules}})
    json.at(name).get_to(*list);
  return way;
}

/// Paths that dpkg has on record for one of the packages.
Result<std::set<std::string>> paths_of(const Host& host, const DriverPackages& list) {
  std::set<std::string> paths;
  for (const DriverPackages::Purged& one : list.purged) {
    std::istringstream lines(TRY(host.output_of({{"dpkg-query", "--listfiles", one.package.id()}, {}, {}})));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with('/')) paths.insert(line);
  }
  return paths;
}

/// Keeps present configuration, and links that enable units: the .deb files do not have them.
Result<void> keep_files(Host& host, const DriverPackages& list, const std::set<std::string>& paths,
                        const std::string& scratch, PackageBackup& way) {
  for (const DriverPackages::Purged& one : list.purged)
    for (const std::string& path : one.package.conffiles) {
      const bool there = TRY(host.files().capture(path)).kind != FileState::Kind::absent;
      (there ? way.kept : way.absent).push_back(path);
    }
  for (const std::string& path : paths) {
    const std::size_t at = path.find(kUnits);
    const std::string unit = at == path.npos ? "" : path.substr(at + kUnits.size());
    if (!unit.empty() && unit.find('/') == unit.npos) way.units.push_back(unit);
  }
  for (const std::string& link : links_to_units(host, way.units)) way.kept.push_back(link);
  TRY(host.make_directory(scratch + "/kept"));
  Command copy{{"cp", "--archive", "--parents", "--target-directory=" + scratch + "/kept"}, {}, {}, kDeadline};
  copy.argv.insert(copy.argv.end(), way.kept.begin(), way.kept.end());
  if (!way.kept.empty()) TRY(host.run(copy));
  return {};
}

/// Keeps the present choice of the alternatives that the packages provide.
Result<void> keep_alternatives(const Host& host, const std::set<std::string>& paths, PackageBackup& way) {
  std::istringstream chosen(TRY(host.output_of({{"update-alternatives", "--get-selections"}, {}, {}})));
  for (std::string line; std::getline(chosen, line);) {
    const std::string name = line.substr(0, line.find(' '));
    std::istringstream record(host.files().read(fmt::format("{}/{}", kAlternatives, name)).value_or(""));
    for (std::string path; std::getline(record, path);)
      if (path.starts_with('/') && paths.contains(path)) {
        way.alternatives.push_back(line);
        break;
      }
  }
  return {};
}

/// Restores the kept file or link of `path`, unless it is there.
Result<void> put_back(Host& host, const std::string& path) {
  const std::string kept = std::string(PackageBackup::kPath) + "/kept" + path;
  if (TRY(host.files().capture(path)) == TRY(host.files().capture(kept))) return {};
  const std::string beside = unfinished(path);
  TRY(host.remove_tree(beside));
  TRY(host.run({{"mkdir", "--parents", path.substr(0, path.rfind('/'))}, {}, {}}));
  TRY(host.run({{"cp", "--archive", "--no-target-directory", kept, beside}, {}, {}, kDeadline}));
  return host.move(beside, path);
}

Result<void> put_back_all(Host& host, const PackageBackup& way) {
  for (const std::string& path : way.kept) TRY_IN(path, put_back(host, path));
  for (const std::string& path : way.absent) TRY(host.remove(path));
  for (const std::string& path : links_to_units(host, way.units))
    if (std::ranges::find(way.kept, path) == way.kept.end()) TRY(host.remove(path));
  return {};
}

Result<void> mark(Host& host, const PackageBackup& way) {
  Command choose{{"update-alternatives", "--set-selections"}, {}, {}, kDeadline};
  choose.input = fmt::format("{}\n", fmt::join(way.alternatives, "\n"));
  if (!way.alternatives.empty()) TRY(host.run(choose));
  for (const auto& [verb, flag] :
       {std::pair{"auto", &PackageBackup::Package::automatic}, {"hold", &PackageBackup::Package::held}}) {
    Command marks{{"apt-mark", verb}, {}, {}, kDeadline};
    for (const PackageBackup::Package& package : way.packages)
      if (package.*flag) marks.argv.push_back(package.id());
    if (marks.argv.size() > 2) TRY(host.run(marks));
  }
  return {};
}

/// Ids of a driver's packages that are installed now and not in the backup.
Result<std::vector<std::string>> added_since(const PackageBackup& way, const Host& host) {
  std::vector<std::string> ids = TRY(driver_packages(host)).ids();
  std::erase_if(ids, [&](const std::string& id) {
    return std::ranges::any_of(way.packages, [&](const PackageBackup::Package& package) { return package.id() == id; });
  });
  return ids;
}

}  // namespace

std::string PackageBackup::Package::id() const { return architecture == "all" ? name : name + ":" + architecture; }

std::map<std::string, std::string> PackageBackup::archives() const {
  std::map<std::string, std::string> found;
  for (const Package& package : packages) found[package.id()] = package.path();
  return found;
}

const PackageBackup::Package* PackageBackup::find(const DpkgPackage& package) const {
  const auto found = std::ranges::find_if(packages, [&](const Package& one) {
    return one.name == package.name && one.architecture == package.architecture && one.version == package.version;
  });
  return found == packages.end() ? nullptr : &*found;
}

std::string to_json_text(const PackageBackup& way) {
  Json packages = Json::array();
  for (const PackageBackup::Package& one : way.packages)
    packages.push_back({{"name", one.name},
                        {"architecture", one.architecture},
                        {"version", one.version},
                        {"deb", one.deb},
                        {"sha256", one.sha256},
                        {"from", one.from},
                        {"automatic", one.automatic},
                        {"held", one.held}});
  const Json all = {
      {"packages", std::move(packages)},  {"kept", way.kept},      {"absent", way.absent}, {"units", way.units},
      {"alternatives", way.alternatives}, {"modules", way.modules}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<PackageBackup> read_package_backup(const Host& host) {
  const std::string text = TRY(host.files().read(kManifest));
  try {
    return from_json(parse_json(text));
  } catch (const Json::exception& error) {
    return fail(ErrorCode::invalid, fmt::format("{} is damaged: {}", kManifest, error.what()), std::string(kNext));
  }
}

Result<void> check_package_backup(const Host& host, const PackageBackup& way) {
  for (const PackageBackup::Package& package : way.packages) {
    const std::string sum = TRY_IN("the package backup of " + package.id(), sha256_of_file(host, package.path()));
    if (sum != package.sha256)
      return fail(ErrorCode::invalid,
                  fmt::format("the package backup of {}: {} is not what was staged", package.id(), package.path()),
                  std::string(kNext));
  }
  for (const std::string& path : way.kept)
    TRY_IN("the package backup of " + path, host.files().capture(std::string(PackageBackup::kPath) + "/kept" + path));
  return {};
}

Result<PackageBackup> complete_package_backup(const Host& host, const DriverPackages& list) {
  auto way = read_package_backup(host);
  if (!way && way.error().code == ErrorCode::not_found && !list.empty())
    return fail(ErrorCode::not_found, "none of them is staged", "The fix way-back stages them.");
  if (!way) return way;
  for (const DriverPackages::Purged& one : list.purged)
    if (way->find(one.package) == nullptr)
      return fail(ErrorCode::not_found, fmt::format("{} {} is not staged", one.package.id(), one.package.version),
                  "The fix way-back stages it.");
  TRY(check_package_backup(host, *way));
  return way;
}

Command install_from(const PackageBackup& way, const std::string& directory) {
  Command command =
      apt_get({kAptAsRoot, "-oDir::Etc::SourceList=/dev/null", "-oDir::Etc::SourceParts=/dev/null",
               "-oDir::Etc::Preferences=/dev/null", "-oDir::Etc::PreferencesParts=/dev/null", "--no-install-recommends",
               "--no-remove", "--allow-downgrades", "--allow-change-held-packages", "install"});
  for (const PackageBackup::Package& package : way.packages) command.argv.push_back(directory + "/debs/" + package.deb);
  return command;
}

Result<DriverPackages> to_be_purged(const Host& host) {
  DriverPackages found = TRY(driver_packages(host));
  if (!host.files().exists(PackageBackup::kPurging)) return found;
  const PackageBackup way = TRY(read_package_backup(host));
  const std::vector<std::string> known = found.ids();
  for (DpkgPackage& package : TRY(dpkg_packages(host))) {
    const bool listed = std::ranges::any_of(way.packages, [&](const auto& one) { return one.id() == package.id(); });
    if (listed && package.state != "not-installed" && std::ranges::find(known, package.id()) == known.end())
      found.purged.push_back({std::move(package), DriverPackages::Because::came_with_it, {}, true});
  }
  return found;
}

Result<void> keep_beside_debs(Host& host, const DriverPackages& list, const std::string& directory,
                              PackageBackup& way) {
  const std::set<std::string> paths = TRY(paths_of(host, list));
  TRY(keep_files(host, list, paths, directory, way));
  way.modules = built_by_dkms(host, paths);
  return keep_alternatives(host, paths, way);
}

std::vector<std::string> links_to_units(const Host& host, const std::vector<std::string>& units) {
  std::vector<std::string> found;
  const auto list = [&](const std::string& path) { return host.names(path); };
  const auto of_unit = [&](const std::string& name) {
    return std::ranges::any_of(units, [&](const auto& unit) { return name == unit || name == unit + ".dsh-also"; });
  };
  for (const std::string_view place : kUnitPlaces)
    for (const std::string& name : list(std::string(place))) {
      const std::string path = fmt::format("{}/{}", place, name);
      if (of_unit(name)) found.push_back(path);
      if (!name.ends_with(".wants") && !name.ends_with(".requires")) continue;
      for (const std::string& link : list(path))
        if (of_unit(link)) found.push_back(path + "/" + link);
    }
  return found;
}

Result<void> bring_back(Host& host, bool only_these) {
  const auto way = read_package_backup(host);
  if (!way)
    return fail(way.error().code, "the packages of the driver cannot be installed again: " + way.error().message,
                std::string(kNext));
  TRY(check_package_backup(host, *way));
  TRY(wait_for_package_locks(host));
  TRY(repair_packages(host, way->archives()));
  Command install = install_from(*way, std::string(PackageBackup::kPath));
  const std::vector<std::string> added = only_these ? TRY(added_since(*way, host)) : std::vector<std::string>();
  if (!added.empty()) {  // apt does not install the older ones beside what needs the newer ones
    std::erase(install.argv, "--no-remove");
    install.argv.insert(install.argv.begin() + 1, "--purge");
    for (const std::string& id : added) install.argv.push_back(id + "-");
    TRY_IN("what came with the newer driver", require_removals(TRY(simulated(host, install)), added));
  }
  TRY(change_packages(host, install));
  TRY(mark(host, *way));
  TRY(put_back_all(host,
                   *way));  // last: an alternative that is set again loses its links to configuration that was removed
  return host.remove_tree(PackageBackup::kPurging);
}

}  // namespace p2pd
