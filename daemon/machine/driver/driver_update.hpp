// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A newer driver in the distribution's archives than the installed packages.
struct DriverUpdate {
  std::string installed;  ///< version of the driver, "570.123.11"; empty: no packaged driver, or not all of one version
  std::string offered;    ///< newer version; empty: none
  std::string
      build;  ///< catalogue entry whose modules fit the offered version, this machine and its kernels; empty: none
};

/// File that exists while packages are upgraded: "PACKAGE=VERSION" of each, a line each. It resumes an upgrade that was
/// killed.
inline constexpr std::string_view kUpdateUnderWay = "/var/lib/p2pd/driver-update";

/// Asks apt for its candidate, without the pins of preferences.d: p2pd's keep the driver at its version. Runs
/// apt-cache.
Result<DriverUpdate> driver_update(const Host& host);

/// Driver packages of which apt has the offered version: package id to package version.
Result<std::map<std::string, std::string>> offered_packages(const Host& host, const DriverUpdate& update);

}  // namespace p2pd
