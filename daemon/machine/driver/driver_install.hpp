// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {

/// "570.86.16" of a package's version "1:570.86.16-0ubuntu1"; empty for modules of one kernel, whose version is the
/// kernel's.
std::string driver_version(std::string_view package, std::string_view version);

/// Installations of NVIDIA drivers on a host.
struct DriverInstall {
  struct Runfile {
    bool installed = false;
    std::string version;        ///< empty if its manifest has none
    bool log = false;           ///< /var/log/nvidia-installer.log exists; it outlives the driver: no proof of it
    bool refused_here = false;  ///< a package asks NVIDIA's installer to stop
  };
  std::vector<DpkgPackage> packages;  ///< packages of a driver: its modules, or libraries that talk to them
  Runfile runfile;
  std::set<std::string> dkms;  ///< "nvidia/570.86.16 for 6.8.0-60-generic"; without "for" if it is not built
  std::vector<Evidence> evidence;

  /// Driver versions of the packages, without kernel-specific ones: "570.86.16".
  std::set<std::string> package_versions() const;
  /// Checks for a package with kernel modules, even if others have replaced them since.
  bool packaged_modules() const;
};

/// Reads dpkg's status file, the runfile's manifest and uninstaller, DKMS trees. A host without dpkg is an Error.
Result<DriverInstall> installed_driver(const Host& host);

}  // namespace p2pd
