// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"

namespace p2pd {

/// The driver of the installed packages: what of it can stay beside modules that p2pd builds.
struct PackagedUserspace {
  std::string version;  ///< of its libraries, "580.142": modules of that version fit; empty: packages bring no driver, or no one version
  std::string why_not;  ///< for a person, where packages bring a driver and it cannot stay

  bool can_stay() const { return !version.empty() && why_not.empty(); }
};

/// Packages stay where each library of the driver is of one version, a package of that version is installed, no runfile is,
/// and the firmware that open modules load (gsp_*.bin) is there. Reads dpkg's status, the standard library directories and
/// /lib/firmware/nvidia. A host without dpkg is an Error.
Result<PackagedUserspace> packaged_userspace(const Host& host);

}  // namespace p2pd
