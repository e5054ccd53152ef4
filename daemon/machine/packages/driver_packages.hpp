// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {

/// Role of a package in an NVIDIA driver.
enum class DriverRole {
  none,
  modules,    ///< brings kernel modules
  libraries,  ///< other packages of the driver's version: libraries that talk to the modules, and meta packages
  companion,  ///< accompanies a driver: firmware, tools, alternatives, diversions
};

/// Names of driver packages of Debian 12, Ubuntu 22.04 and 24.04 and NVIDIA's repositories, as globs of glob(7). None
/// fits a spared package, so that apt can be given them as they are.
std::vector<std::string_view> driver_globs();

DriverRole driver_role(std::string_view name);

/// Reason why a package stays although its name, or a package that needed it, suggests otherwise; empty: nothing to
/// report.
std::string_view spared_because(std::string_view name);

/// Installed packages that a swap of the driver affects.
struct DriverPackages {
  enum class Because { driver, needs_it, came_with_it };
  struct Purged {
    DpkgPackage package;
    Because because = Because::driver;
    std::string need;        ///< dependency that nothing else provides, for needs_it
    bool automatic = false;  ///< apt installed it only because others need it
  };
  struct Named {
    std::string package;
    std::string why;
  };
  std::vector<Purged> purged;  ///< exact list
  std::vector<Named> spared;   ///< packages that look like it, and stay
  std::vector<Named> blocked;  ///< spared packages that need a purged one: the purge would break them

  bool empty() const { return purged.empty(); }
  std::vector<std::string> ids() const;
};

std::string_view to_string(DriverPackages::Because because);

/// Selects from dpkg's records and apt's marks, by names alone: versions of relations are left to apt, whose simulation
/// decides. Packages that came with the driver are automatic, not of the base system, and neither needed, recommended
/// nor suggested by anything that stays.
DriverPackages select_driver_packages(const std::vector<DpkgPackage>& all, const std::set<std::string>& automatic);

/// Selects the packages of `host`; Error if it has no dpkg, or a file of dpkg or apt is damaged.
Result<DriverPackages> driver_packages(const Host& host);

}  // namespace p2pd
