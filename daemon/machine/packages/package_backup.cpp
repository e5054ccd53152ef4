// SPDX-License-Identifier: MIT
#include "machine/packages/package_backup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/modules/initramfs.hpp"
#include "machine/packages/apt.hpp"

namespace p2pd {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StagedDeb, name, architecture, version, deb, sha256, from, automatic, held)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PackageBackup, packages, kept, absent, units, alternatives, modules)

namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kDeadline{10};  // long, for a machine under load: half a package backup is useless

constexpr std::string_view kAlternatives = "/var/lib/dpkg/alternatives";
constexpr std::string_view kUnits = "lib/systemd/system/";
constexpr std::string_view kUnitPlaces[] = {"/etc/systemd/system", "/var/lib/systemd/deb-systemd-helper-enabled",
                                            "/var/lib/systemd/deb-systemd-helper-masked"};

/// Paths that dpkg has on record for one of the packages.
Result<std::set<std::string>> paths_of(const Host& host, const std::vector<std::string>& ids) {
  std::set<std::string> paths;
  for (const std::string& id : ids) {
    std::istringstream lines(TRY(host.output_of({{"dpkg-query", "--listfiles", id}, {}, {}})));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with('/')) paths.insert(line);
  }
  return paths;
}

/// Names of the unit files among `paths`.
std::vector<std::string> units_in(const std::set<std::string>& paths) {
  std::vector<std::string> units;
  for (const std::string& path : paths) {
    const std::size_t at = path.find(kUnits);
    const std::string unit = at == path.npos ? "" : path.substr(at + kUnits.size());
    if (!unit.empty() && unit.find('/') == unit.npos) units.push_back(unit);
  }
  return units;
}

/// Keeps present configuration, and links that enable units: the .deb files do not have them.
Result<void> keep_files(Host& host, const DriverPackages& list, const std::set<std::string>& paths,
                        PackageBackup& way) {
  for (const DriverPackages::Purged& one : list.purged)
    for (const std::string& path : one.package.conffiles) {
      const bool there = TRY(host.files().capture(path)).kind != FileState::Kind::absent;
      (there ? way.kept : way.absent).push_back(path);
    }
  way.units = units_in(paths);
  for (const std::string& link : links_to_units(host, way.units)) way.kept.push_back(link);
  TRY(host.make_directory(way.directory + "/kept"));
  Command copy{{"cp", "--archive", "--parents", "--target-directory=" + way.directory + "/kept"}, {}, {}, kDeadline};
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

/// Restores `path` from the `kept` file or link, unless it is there.
Result<void> put_back(Host& host, const std::string& path, const std::string& kept) {
  if (TRY(host.files().capture(path)) == TRY(host.files().capture(kept))) return {};
  const std::string beside = unfinished(path);
  TRY(host.remove_tree(beside));
  TRY(host.run({{"mkdir", "--parents", path.substr(0, path.rfind('/'))}, {}, {}}));
  TRY(host.run({{"cp", "--archive", "--no-target-directory", kept, beside}, {}, {}, kDeadline}));
  return host.move(beside, path);
}

Result<void> put_back_all(Host& host, const PackageBackup& way) {
  for (const std::string& path : way.kept) TRY_IN(path, put_back(host, path, way.directory + "/kept" + path));
  for (const std::string& path : way.absent) TRY(host.remove(path));
  for (const std::string& path : links_to_units(host, way.units))
    if (std::ranges::find(way.kept, path) == way.kept.end()) TRY(host.remove(path));
  return {};
}

Result<void> mark(Host& host, const PackageBackup& way) {
  Command choose{{"update-alternatives", "--set-selections"}, {}, {}, kDeadline};
  choose.input = fmt::format("{}\n", fmt::join(way.alternatives, "\n"));
  if (!way.alternatives.empty()) TRY(host.run(choose));
  for (const auto& [verb, flag] : {std::pair{"auto", &StagedDeb::automatic}, {"hold", &StagedDeb::held}}) {
    Command marks{{"apt-mark", verb}, {}, {}, kDeadline};
    for (const StagedDeb& package : way.packages)
      if (package.*flag) marks.argv.push_back(package.id());
    if (marks.argv.size() > 2) TRY(host.run(marks));
  }
  return {};
}

/// Package of dpkg's that `wanted` is now, at any version; null: dpkg does not know it.
const DpkgPackage* find(const std::vector<DpkgPackage>& all, const StagedDeb& wanted) {
  const auto found = std::ranges::find_if(all, [&](const DpkgPackage& one) {
    return one.name == wanted.name &&
           (one.architecture == wanted.architecture || one.architecture == "all" || wanted.architecture == "all");
  });
  return found == all.end() ? nullptr : &*found;
}

/// Checks for a file or link that systemd or deb-systemd-helper names after one of `units`.
bool is_of(const std::vector<std::string>& units, std::string_view name) {
  return std::ranges::any_of(units,
                             [&](const std::string& unit) { return name == unit || name == unit + ".dsh-also"; });
}

/// Ids of a driver's packages that are installed now and not in the backup.
Result<std::vector<std::string>> added_since(const PackageBackup& way, const Host& host) {
  std::vector<std::string> ids = TRY(driver_packages(host)).ids();
  std::erase_if(ids, [&](const std::string& id) {
    return std::ranges::any_of(way.packages, [&](const StagedDeb& package) { return package.id() == id; });
  });
  return ids;
}

/// Reads the backup in `directory`.
Result<PackageBackup> read_from(const Host& host, const std::string& directory) {
  const std::string manifest = directory + "/manifest.json", text = TRY(host.files().read(manifest));
  try {
    auto way = parse_json(text).get<PackageBackup>();
    way.directory = directory;
    return way;
  } catch (const Json::exception& error) {
    return fail(ErrorCode::invalid, fmt::format("{} is damaged: {}", manifest, error.what()),
                "Restore it from a backup of this machine.");
  }
}

/// Number at the start of `text`, such as the run's in the name of a change, "7-cuda".
std::uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

/// Directory of the backup that the present change needs: newer runs that made another moved it, and their undo moves
/// it back.
std::string directory_for_undo(const Host& host) {
  std::map<std::uint64_t, std::string> moved;
  for (const std::string& change : host.names(PackageBackup::kBefore)) {
    std::string backup = fmt::format("{}/{}/way-back", PackageBackup::kBefore, change);
    if (number(change) > number(host.change()) && host.files().exists(backup))
      moved[number(change)] = std::move(backup);
  }
  return moved.empty() ? std::string(PackageBackup::kPath) : moved.begin()->second;
}

/// Checks that the .deb is there as it was staged.
bool is_whole(const Host& host, const PackageBackup& way, const StagedDeb& package) {
  return sha256_of_file(host, way.path(package)).value_or("") == package.sha256;
}

Result<void> check_kept(const Host& host, const PackageBackup& way) {
  for (const std::string& path : way.kept) {
    const std::string kept = way.directory + "/kept" + path;
    if (TRY(host.files().capture(kept)).kind == FileState::Kind::absent)
      return fail(ErrorCode::invalid, kept + " is missing",
                  fmt::format("Put the file there that {} is to be, then try again.", path));
  }
  return {};
}

Failure lost(const Host& host, const PackageBackup& way, const StagedDeb& one) {
  const std::string path = way.path(one);
  const char* state = host.files().exists(path) ? "damaged" : "missing";
  const char* why =
      one.from == "rebuilt" ? "was built from installed files: no archive has it" : "cannot be fetched again";
  return fail(
      ErrorCode::invalid, fmt::format("{} is {}, and {} {} {}", path, state, one.id(), one.version, why),
      fmt::format("Connect the network, put a file with the SHA-256 {} there, or install {} by apt; then try again.",
                  one.sha256, one.name));
}

/// Makes sure that each .deb is there as it was staged; others are fetched again.
Result<void> restore_debs(Host& host, const PackageBackup& way) {
  std::vector<StagedDeb> wanted = way.packages;
  std::erase_if(wanted, [&](const StagedDeb& one) { return is_whole(host, way, one); });
  if (wanted.empty()) return {};
  TRY(fetch_again(host, wanted, way.directory + "/debs"));
  for (const StagedDeb& one : way.packages)
    if (!is_whole(host, way, one)) return lost(host, way, one);
  return {};
}

/// Removes from `way` what belongs to packages that a person has installed at another version: their files, units and
/// marks stay.
Result<void> leave_out_others(const Host& host, PackageBackup& way) {
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  std::vector<std::string> others;
  std::erase_if(way.packages, [&](const StagedDeb& one) {
    const DpkgPackage* now = find(all, one);
    if (now == nullptr || !now->installed() || now->interrupted() || now->version == one.version) return false;
    others.push_back(now->id());
    return true;
  });
  const std::set<std::string> paths = TRY(paths_of(host, others));
  const std::vector<std::string> units = units_in(paths);
  const auto is_theirs = [&](const std::string& path) {
    return paths.contains(path) || is_of(units, path.substr(path.rfind('/') + 1));
  };
  std::erase_if(way.kept, is_theirs);
  std::erase_if(way.absent, is_theirs);
  std::erase_if(way.units, [&](const std::string& unit) { return is_of(units, unit); });
  if (way.packages.empty())  // what the person has instead is complete
    for (auto* list : {&way.kept, &way.absent, &way.units, &way.alternatives}) list->clear();
  return {};
}

/// Part of bring_back() that remains.
struct Return {
  PackageBackup way;               ///< without packages that a person has installed at another version
  PackageBackup missing;           ///< packages of it that are not installed
  std::vector<std::string> added;  ///< ids of packages that came with newer ones, and are purged
};

/// Finds it. nullopt: a person installed a driver's packages and removed the backup.
Result<std::optional<Return>> remaining(const Host& host, bool only_these) {
  const std::string directory = directory_for_undo(host);
  auto way = read_from(host, directory);
  if (!way && !host.files().exists(directory) && !TRY(driver_packages(host)).empty()) {
    log::warning("the packages of the driver stay as they are: there is no {}", directory);
    return std::optional<Return>();
  }
  if (!way)
    return fail(
        way.error().code, "the packages of the driver cannot be installed again: " + way.error().message,
        fmt::format("Restore it from a backup of this machine; or install a driver's packages by apt, and remove {}.",
                    directory));
  Return left{std::move(*way), {}, {}};
  if (!only_these) TRY(leave_out_others(host, left.way));
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  left.missing = left.way;
  std::erase_if(left.missing.packages, [&](const StagedDeb& one) {
    const DpkgPackage* now = find(all, one);
    return now != nullptr && now->installed() && !now->interrupted() && now->version == one.version;
  });
  if (only_these) left.added = TRY(added_since(left.way, host));
  return std::optional(std::move(left));
}

/// apt-get that installs and purges them; without words if nothing remains.
Command changing(const Return& left) {
  if (left.missing.packages.empty() && left.added.empty()) return {};
  Command install = install_from(left.missing);
  if (left.added.empty()) return install;
  std::erase(install.argv, "--no-remove");  // apt does not install the older ones beside what needs the newer ones
  install.argv.insert(install.argv.begin() + 1, "--purge");
  for (const std::string& id : left.added) install.argv.push_back(id + "-");
  return install;
}

/// Checks that there is room for the packages, and for an initramfs that their scripts regenerate.
Result<void> need_room_for(const Host& host, const PackageBackup& missing, std::uint64_t freed_bytes) {
  std::uint64_t bytes = 0;
  for (const StagedDeb& one : missing.packages)
    bytes += number(TRY(host.output_of({{"dpkg-deb", "--field", missing.path(one), "Installed-Size"}, {}, {}}))) << 10;
  if (bytes > freed_bytes) TRY(need_room(host, kUsr, bytes - freed_bytes));
  const bool any = std::ranges::any_of(missing.packages, [](const StagedDeb& one) {
    return driver_role(one.name) == DriverRole::modules || driver_role(one.name) == DriverRole::companion;
  });
  const auto images = initramfs_images(host);
  if (any && images)
    for (const Initramfs& one : *images) TRY(need_initramfs_room(host, one));
  return {};
}

/// Makes sure that it can be done: see prepare_bring_back().
Result<std::optional<Return>> prepared(Host& host, bool only_these, std::uint64_t freed_bytes) {
  TRY(check_packages_can_change(host));
  std::optional<Return> left = TRY(remaining(host, only_these));
  if (!left) return left;
  TRY(restore_debs(host, left->missing));
  TRY(repair_packages(host, left->missing.archives()));
  left = TRY(remaining(host, only_these));  // which the repair has changed
  TRY(check_kept(host, left->way));
  const Command change = changing(*left);
  if (change.argv.empty()) return left;
  if (!only_these) TRY(need_room_for(host, left->missing, freed_bytes));  // an update replaces files of the same size
  auto plan = simulated(host, change);
  if (!plan) {
    plan.error().next = fmt::format(
        "Install these packages by apt, at any version; or, to keep the driver that is installed, remove {}.",
        left->way.directory);
    return Failure(std::move(plan).error().in("apt refuses to install the driver's packages again"));
  }
  TRY_IN("what came with the newer driver", require_removals(*plan, left->added));
  return left;
}

}  // namespace

std::map<std::string, std::string> PackageBackup::archives() const {
  std::map<std::string, std::string> found;
  for (const StagedDeb& package : packages) found[package.id()] = path(package);
  return found;
}

std::string to_json_text(const PackageBackup& way) {
  return Json(way).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<PackageBackup> read_package_backup(const Host& host) {
  return read_from(host, std::string(PackageBackup::kPath));
}

Result<PackageBackup> complete_package_backup(const Host& host, const DriverPackages& list) {
  auto way = read_package_backup(host);
  if (!way && way.error().code == ErrorCode::not_found && !list.empty())
    return fail(ErrorCode::not_found, "none of them is staged", "The fix way-back stages them.");
  if (!way) return way;
  for (const DriverPackages::Purged& one : list.purged)
    if (std::ranges::none_of(way->packages, [&](const StagedDeb& staged) { return staged == one.package; }))
      return fail(ErrorCode::not_found, fmt::format("{} {} is not staged", one.package.id(), one.package.version),
                  "The fix way-back stages it.");
  for (const StagedDeb& package : way->packages)
    if (!is_whole(host, *way, package))
      return fail(ErrorCode::invalid,
                  fmt::format("the package backup of {}: {} is not what was staged", package.id(), way->path(package)),
                  "The fix way-back stages it again.");
  TRY(check_kept(host, *way));
  return way;
}

Command install_from(const PackageBackup& way) {
  Command command =
      apt_get({kAptAsRoot, "-oDir::Etc::SourceList=/dev/null", "-oDir::Etc::SourceParts=/dev/null",
               "-oDir::Etc::Preferences=/dev/null", "-oDir::Etc::PreferencesParts=/dev/null", "--no-install-recommends",
               "--no-remove", "--allow-downgrades", "--allow-change-held-packages", "install"});
  for (const StagedDeb& package : way.packages) command.argv.push_back(way.path(package));
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

Result<void> keep_beside_debs(Host& host, const DriverPackages& list, PackageBackup& way) {
  const std::set<std::string> paths = TRY(paths_of(host, list.ids()));
  TRY(keep_files(host, list, paths, way));
  way.modules = built_by_dkms(host, paths);
  return keep_alternatives(host, paths, way);
}

std::vector<std::string> links_to_units(const Host& host, const std::vector<std::string>& units) {
  std::vector<std::string> found;
  const auto list = [&](const std::string& path) { return host.names(path); };
  for (const std::string_view place : kUnitPlaces)
    for (const std::string& name : list(std::string(place))) {
      const std::string path = fmt::format("{}/{}", place, name);
      if (is_of(units, name)) found.push_back(path);
      if (!name.ends_with(".wants") && !name.ends_with(".requires")) continue;
      for (const std::string& link : list(path))
        if (is_of(units, link)) found.push_back(path + "/" + link);
    }
  return found;
}

Result<void> prepare_bring_back(Host& host, bool only_these, std::uint64_t freed_bytes) {
  TRY(prepared(host, only_these, freed_bytes));
  return {};
}

Result<void> bring_back(Host& host, bool only_these) {
  TRY(wait_for_package_locks(host));
  const std::optional<Return> left = TRY(prepared(host, only_these, 0));
  if (!left) return {};
  if (const Command change = changing(*left); !change.argv.empty()) TRY(change_packages(host, change));
  TRY(mark(host, left->way));
  // last: an alternative that is set again loses its links to configuration that was removed
  TRY(put_back_all(host, left->way));
  return host.remove_tree(PackageBackup::kPurging);
}

}  // namespace p2pd
