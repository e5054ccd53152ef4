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
    std::string version;  ///< empty if its manifest has none
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

/// Reads dpkg's status file, the runfile's manifest and uninstaller, DKMS trees. A host without dpkg is an Error,
/// unless its distribution has another package manager: its packages are not known.
Result<DriverInstall> installed_driver(const Host& host);

/// A driver library, as programs find it.
struct DriverLibrary {
  std::string link;     ///< "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::string version;  ///< "570.86.16", the end of the name that it links to; empty if that has no version
};

/// Version "570.86.16" in "libcuda.so.570.86.16"; empty if `file` has none.
std::string driver_version_of(const std::string& file);

/// Finds each `name` ("libcuda.so.1") in the standard library directories, Debian's and NixOS's too.
std::vector<DriverLibrary> driver_libraries(const Host& host, std::string_view name);

/// Driver of the installed packages, and its part that can stay beside modules that p2pd builds.
struct PackagedUserspace {
  std::string version;  ///< version of its libraries, "580.142": modules of that version fit; empty: no packaged
                        ///< driver, or no one version
  std::string why_not;  ///< reason for a person, if packages bring a driver that cannot stay

  bool can_stay() const { return !version.empty() && why_not.empty(); }
};

/// Finds it. Packages stay if each library of the driver is of one version, a package of that version is installed, no
/// runfile is, and the firmware that open modules load (gsp_*.bin) exists. Reads dpkg's status, the standard library
/// directories and /lib/firmware/nvidia. A host without dpkg is an Error.
Result<PackagedUserspace> packaged_userspace(const Host& host);

}  // namespace p2pd
