// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {

/// What a package has to do with an NVIDIA driver.
enum class DriverRole {
  none,
  modules,    ///< brings kernel modules
  libraries,  ///< carries the driver's version otherwise: libraries that talk to the modules, and what stands for all
  companion,  ///< goes with a driver: firmware, tools, alternatives, diversions
};

/// A row of the one table of driver packages: a glob(7) of package names, of Debian 12, Ubuntu 22.04 and 24.04 and
/// NVIDIA's repositories. No row fits what is spared, so that apt can be given the globs as they are.
struct DriverPattern {
  std::string_view glob;
  DriverRole role;
};
std::span<const DriverPattern> driver_patterns();

DriverRole driver_role(std::string_view name);

/// Why a package stays although its name, or what needed it, suggests otherwise; empty where nothing is to be said.
std::string_view spared_because(std::string_view name);

/// The installed packages that a swap of the driver is about.
struct DriverPackages {
  enum class Because { driver, needs_it, came_with_it };
  struct Purged {
    DpkgPackage package;
    Because because = Because::driver;
    std::string need;        ///< of needs_it: the dependency that nothing else gives
    bool automatic = false;  ///< apt installed it only because others need it
  };
  struct Named {
    std::string package;
    std::string why;
  };
  std::vector<Purged> purged;  ///< the exact list
  std::vector<Named> spared;   ///< they look like it, and stay
  std::vector<Named> blocked;  ///< spared ones that need what would go: to purge would be to break them

  bool empty() const { return purged.empty(); }
  std::vector<std::string> ids() const;
};

std::string_view to_string(DriverPackages::Because because);

/// Decides from dpkg's records and apt's marks, by names alone: versions of relations are left to apt, whose simulation
/// has the last word. What came with the driver is automatic, not of the base system, and neither needed, recommended
/// nor suggested by anything that stays.
DriverPackages select_driver_packages(const std::vector<DpkgPackage>& all, const std::set<std::string>& automatic);

/// The same of `host`; Error where it has no dpkg, or a file of dpkg or apt is damaged.
Result<DriverPackages> driver_packages(const Host& host);

}  // namespace p2pd
