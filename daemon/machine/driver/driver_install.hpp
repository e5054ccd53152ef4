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

/// "570.86.16" of a package's version "1:570.86.16-0ubuntu1"; empty of modules for one kernel, whose version is the kernel's.
std::string driver_version(std::string_view package, std::string_view version);

/// The ways in which NVIDIA drivers came to a host.
struct DriverInstall {
  struct Runfile {
    bool installed = false;
    std::string version;        ///< empty when its manifest does not tell
    bool log = false;           ///< /var/log/nvidia-installer.log, which outlives the driver: no proof of it
    bool refused_here = false;  ///< a package asks NVIDIA's installer to stop
  };
  std::vector<DpkgPackage> packages;  ///< that carry a driver: its modules, or libraries that talk to them
  Runfile runfile;
  std::set<std::string> dkms;  ///< "nvidia/570.86.16 for 6.8.0-60-generic"; without "for" where it is not built
  std::vector<Evidence> evidence;

  /// "570.86.16" of the packages; kernel-specific ones count by their kernel and are left out.
  std::set<std::string> package_versions() const;
  /// A package brings kernel modules: the distribution's, whatever was laid over them since.
  bool packaged_modules() const;
};

/// Reads dpkg's status file, the runfile's manifest and uninstaller, DKMS trees. A host without dpkg is an Error.
Result<DriverInstall> installed_driver(const Host& host);

}  // namespace p2pd
