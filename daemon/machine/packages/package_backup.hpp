// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {

/// Package backup: restores the packages of a purged driver without network. /var/lib/p2pd/way-back has a .deb of each,
/// what these do not contain, and manifest.json, written last. Only root may read it: configuration may hold secrets.
struct PackageBackup {
  static constexpr std::string_view kPath = "/var/lib/p2pd/way-back";
  /// File that exists while packages are purged: a resumed purge also removes packages of the manifest that are still
  /// there.
  static constexpr std::string_view kPurging = "/var/lib/p2pd/way-back/purging";

  struct Package {
    std::string name;
    std::string architecture;
    std::string version;
    std::string deb;     ///< file name in kPath/debs
    std::string sha256;  ///< sum of the .deb
    std::string from;    ///< "cache", "archive" or "rebuilt" from the installed files
    bool automatic = false;
    bool held = false;
    std::string id() const;  ///< same as DpkgPackage::id()
    std::string path() const { return std::string(kPath) + "/debs/" + deb; }
  };
  std::vector<Package> packages;
  std::vector<std::string> kept;          ///< paths whose files are below kPath/kept: configuration, links to units
  std::vector<std::string> absent;        ///< configuration files that the administrator had removed
  std::vector<std::string> units;         ///< unit files of the packages: links to them that are not kept are removed
  std::vector<std::string> alternatives;  ///< "NAME MODE PATH", input of update-alternatives --set-selections
  std::vector<std::string> modules;       ///< modules that DKMS built of them: "nvidia-current-uvm"

  /// Paths of the .deb files by package id.
  std::map<std::string, std::string> archives() const;
  const Package* find(const DpkgPackage& package) const;
};

std::string to_json_text(const PackageBackup& way);

/// Reads the backup. ErrorCode::not_found: there is none; invalid: its manifest is damaged.
Result<PackageBackup> read_package_backup(const Host& host);

/// Checks that each .deb is there as it was staged; the Error names the package.
Result<void> check_package_backup(const Host& host, const PackageBackup& way);

/// Returns the package backup if it has all of `list` and is as it was staged; an Error names the first missing
/// package.
Result<PackageBackup> complete_package_backup(const Host& host, const DriverPackages& list);

/// Makes an apt-get that installs the .deb files of `way`, found below `directory`, and nothing else from anywhere.
Command install_from(const PackageBackup& way, const std::string& directory);

/// Notes in `way`, and copies below `directory`/kept, what the .deb files do not contain: present configuration,
/// links that enable units, the choice of alternatives; and which modules DKMS built of them.
Result<void> keep_beside_debs(Host& host, const DriverPackages& list, const std::string& directory, PackageBackup& way);

/// Packages that a purge must remove now: driver_packages(), and during a purge also the rest of its package backup.
Result<DriverPackages> to_be_purged(const Host& host);

/// Paths of the links by which systemd and deb-systemd-helper know `units`.
std::vector<std::string> links_to_units(const Host& host, const std::vector<std::string>& units);

/// Installs the packages again and restores what these do not contain. `only_these`: purges other packages of a driver,
/// which came with newer ones, in the same step. Can be called again after a kill.
Result<void> bring_back(Host& host, bool only_these = false);

}  // namespace p2pd
