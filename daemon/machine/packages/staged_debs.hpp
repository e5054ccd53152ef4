// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {

/// A .deb that brings an installed package back, and where it came from.
struct StagedDeb {
  std::string file;  ///< name in the directory
  std::string from;  ///< "cache", "archive" or "rebuilt"
};

/// Lays the .deb of each package, at the version that is installed, into `directory`, in the order of `packages`.
///
/// From apt's cache or the archives where the SHA-256 is that of apt's lists; from the cache alone also where no list
/// has the version and the sums of its files are those that dpkg has on record; else built again from the installed
/// files. An Error names the package that none of these ways gives.
Result<std::vector<StagedDeb>> stage_debs(Host& host, const std::vector<DpkgPackage>& packages,
                                          const std::string& directory);

/// The control file of a .deb out of the paragraph that dpkg keeps of it: without what dpkg itself added.
std::string control_of(std::string_view paragraph);

/// "/etc/a" to where dpkg laid the file of `package`; `diversions` is the text of dpkg's file of them.
std::string diverted(std::string_view diversions, const std::string& path, const std::string& package);

}  // namespace p2pd
