// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/driver_packages.hpp"
#include "machine/packages/staged_debs.hpp"

namespace p2pd {

/// Package backup: restores the packages of a purged driver without network. /var/lib/p2pd/way-back has a .deb of each,
/// what these do not contain, and manifest.json, written last. Only root may read it: configuration may hold secrets.
struct PackageBackup {
  static constexpr std::string_view kPath = "/var/lib/p2pd/way-back";
  /// File that exists while packages are purged: a resumed purge also removes packages of the manifest that are still
  /// there.
  static constexpr std::string_view kPurging = "/var/lib/p2pd/way-back/purging";
  /// Directory that has, by run, the backup of the run before: undo of the fix way-back moves it to kPath.
  static constexpr std::string_view kBefore = "/var/lib/p2pd/way-back-before";

  std::string directory{kPath};
  std::vector<StagedDeb> packages;  ///< in `directory`/debs
  std::vector<std::string> kept;    ///< paths whose files are below `directory`/kept: configuration, links to units
  std::vector<std::string> absent;  ///< configuration files that the administrator had removed
  std::vector<std::string> units;   ///< unit files of the packages: links to them that are not kept are removed
  std::vector<std::string> alternatives;  ///< "NAME MODE PATH", input of update-alternatives --set-selections
  std::vector<std::string> modules;       ///< modules that DKMS built of them: "nvidia-current-uvm"

  std::string path(const StagedDeb& package) const { return directory + "/debs/" + package.deb; }
  /// Paths of the .deb files by package id.
  std::map<std::string, std::string> archives() const;
};

std::string to_json_text(const PackageBackup& way);

/// Reads the backup. ErrorCode::not_found: there is none; invalid: its manifest is damaged.
Result<PackageBackup> read_package_backup(const Host& host);

/// Returns the package backup if it has all of `list` and is as it was staged; an Error names the first missing
/// package.
Result<PackageBackup> complete_package_backup(const Host& host, const DriverPackages& list);

/// Makes an apt-get that installs the .deb files of `way`, and nothing else from anywhere.
Command install_from(const PackageBackup& way);

/// Notes in `way`, and copies below its directory, what the .deb files do not contain: present configuration, links
/// that enable units, the choice of alternatives; and which modules DKMS built of them.
Result<void> keep_beside_debs(Host& host, const DriverPackages& list, PackageBackup& way);

/// Packages that a purge must remove now: driver_packages(), and during a purge also the rest of its package backup.
Result<DriverPackages> to_be_purged(const Host& host);

/// Paths of the links by which systemd and deb-systemd-helper know `units`.
std::vector<std::string> links_to_units(const Host& host, const std::vector<std::string>& units);

/// Installs the packages again and restores what these do not contain. Packages that a person has installed meanwhile
/// count as restored, at any version. `only_these`: of an update; packages go back to their old version, and other
/// packages of a driver, which came with newer ones, are purged in the same step. Can be called again after a kill.
Result<void> bring_back(Host& host, bool only_these = false);

/// Checks that bring_back() can succeed, without waiting: locks, sums, room, a simulation by apt. Fetches damaged .deb
/// files again, and finishes an interrupted dpkg. `freed_bytes`: room in /usr that newer undos make first.
Result<void> prepare_bring_back(Host& host, bool only_these = false, std::uint64_t freed_bytes = 0);

}  // namespace p2pd
