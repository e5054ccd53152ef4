// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {

/// A .deb that restores an installed package.
struct StagedDeb : PackageVersion {
  std::string deb;     ///< file name in the directory
  std::string sha256;  ///< sum of the .deb
  std::string from;    ///< "cache", "archive" or "rebuilt" from the installed files
  bool automatic = false;
  bool held = false;
};

/// Writes the .deb of each package of `list`, at the installed version, into `directory`.
///
/// Uses apt's cache or the archives if the SHA-256 is that of apt's lists; the cache alone also if no list
/// has the version and the sums of its files are those that dpkg has on record; else builds it again from the installed
/// files. An Error names the package for which all of these fail.
Result<std::vector<StagedDeb>> stage_debs(Host& host, const DriverPackages& list, const std::string& directory);

/// Restores damaged or missing files in `directory` from apt's cache or the archives, each only with its SHA-256, and
/// whole. Leaves out those that neither has, or that no network reaches.
Result<void> fetch_again(Host& host, const std::vector<StagedDeb>& lost, const std::string& directory);

/// Makes the control file of a .deb from the paragraph that dpkg keeps of it: without what dpkg itself added.
std::string control_of(std::string_view paragraph);

/// Path at which dpkg put the file "/etc/a" of `package`; `diversions` is the text of dpkg's file of them.
std::string diverted(std::string_view diversions, const std::string& path, const std::string& package);

}  // namespace p2pd
