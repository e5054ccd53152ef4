// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A newer driver in the distribution's archives than the installed packages.
struct DriverUpdate {
  std::string installed;  ///< version of the driver, "570.123.11"; empty: no packaged driver, or not all of one version
  std::string offered;    ///< newer version; empty: none
  std::string
      build;  ///< catalogue entry whose modules fit the offered version, this machine and its kernels; empty: none
  std::vector<std::string> packages = {};  ///< "PACKAGE=VERSION" of each that is upgraded; others may come with them
};

/// File that exists while packages are upgraded: "PACKAGE=VERSION" of each, a line each. It resumes an upgrade that was
/// killed.
inline constexpr std::string_view kUpdateUnderWay = "/var/lib/p2pd/driver-update";

/// Asks apt for its candidates, without the pins of preferences.d: p2pd's keep the driver at its version. The version
/// is that of the libraries that would come: packages of an old branch may be empty and need those of another, as
/// Ubuntu's 570.211.01-0ubuntu1 needs 580.178.04. Runs apt-cache, and simulates an apt-get.
Result<DriverUpdate> driver_update(const Host& host);

/// The apt-get that upgrades these packages, and removes none; `resumed`: of one that was killed.
Command upgrade_command(const std::vector<std::string>& packages, bool resumed = false);

}  // namespace p2pd
