// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {

/// All that brings the packages of a purged driver back without network, in /var/lib/p2pd/way-back: a .deb of each,
/// what they do not carry, and manifest.json, which is written last. Root's alone: configuration may hold secrets.
struct PackageBackup {
  static constexpr std::string_view kPath = "/var/lib/p2pd/way-back";
  /// Is there while packages are purged: what the manifest lists and is still there goes, too, when that is resumed.
  static constexpr std::string_view kPurging = "/var/lib/p2pd/way-back/purging";

  struct Package {
    std::string name;
    std::string architecture;
    std::string version;
    std::string deb;     ///< file name in kPath/debs
    std::string sha256;  ///< of it
    std::string from;    ///< "cache", "archive" or "rebuilt" from the installed files
    bool automatic = false;
    bool held = false;
    std::string id() const;  ///< as DpkgPackage::id()
    std::string path() const { return std::string(kPath) + "/debs/" + deb; }
  };
  std::vector<Package> packages;
  std::vector<std::string> kept;          ///< paths whose files lie below kPath/kept: configuration, links to units
  std::vector<std::string> absent;        ///< configuration files that the administrator had removed
  std::vector<std::string> units;         ///< unit files of the packages: links to others than the kept ones go
  std::vector<std::string> alternatives;  ///< "NAME MODE PATH", as update-alternatives --set-selections takes them
  std::vector<std::string> modules;       ///< that DKMS built of them: "nvidia-current-uvm"

  /// Package ids to the paths of their .deb files.
  std::map<std::string, std::string> archives() const;
  const Package* find(const DpkgPackage& package) const;
};

std::string to_json_text(const PackageBackup& way);

/// ErrorCode::not_found: none was made; invalid: its manifest is damaged.
Result<PackageBackup> read_package_backup(const Host& host);

/// Error unless each .deb is there as it was staged; names the package.
Result<void> check_package_backup(const Host& host, const PackageBackup& way);

/// The way back, where it has all of `list` and is as it was staged; an Error names the first package that it lacks.
Result<PackageBackup> complete_package_backup(const Host& host, const DriverPackages& list);

/// An apt-get that installs the .deb files of `way`, found below `directory`, and nothing else from anywhere.
Command install_from(const PackageBackup& way, const std::string& directory);

/// Notes in `way`, and copies below `directory`/kept, what the .deb files do not carry: configuration as it is now,
/// links by which units are enabled, what is chosen of the alternatives; and which modules DKMS built of them.
Result<void> keep_beside_debs(Host& host, const DriverPackages& list, const std::string& directory, PackageBackup& way);

/// What purging has to take now: driver_packages(), and while a purge is under way also the rest of its way back.
Result<DriverPackages> to_be_purged(const Host& host);

/// The links by which systemd and deb-systemd-helper know of `units`, as paths.
std::vector<std::string> links_to_units(const Host& host, const std::vector<std::string>& units);

/// Installs the packages again and puts back what they do not carry. `only_these`: other packages of a driver, which came with newer
/// ones, are purged in the same step. Can be called again after a kill.
Result<void> bring_back(Host& host, bool only_these = false);

}  // namespace p2pd
