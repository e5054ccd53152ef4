// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/modules/module_build.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {

inline constexpr Parameter kByParameter = {"by", Parameter::Type::string, false,
                                           "dkms (unless told) or modules_install: how modules are installed"};
/// Checks that `by` is one of these, and the rest as validate_staging() does.
Result<void> validate_module_install(const Parameters& parameters);
/// Returns false also if the driver's packages stay: their DKMS module is in the place that p2pd's would have.
bool by_dkms(const Parameters& parameters);

/// Modules that modprobe would load for one kernel, compared with those that p2pd installed.
struct InstalledModules {
  nlohmann::json files = nlohmann::json::object();  ///< file that modprobe would load for each module, or null
  std::string lacking;                              ///< reason why these are not the entry's; empty: they are
  std::vector<std::string> foreign;                 ///< files that modprobe would load instead
  bool refused = false;                             ///< they are the entry's, but have no signature that helps
  bool by_build_id = true;                          ///< true if each was compared by its build id
};

/// Compares by build id (srcversion if there is none) and vermagic, never by version, with the modules of the entry's
/// commit in DKMS or in the build's record beside the modules: those stay when the builds in the cache are removed. A
/// module that the running kernel refuses for want of a signature is not installed: see refused_because(). An Error: a
/// file or modprobe.d is not readable.
Result<InstalledModules> installed_modules(const Host& host, const CatalogueEntry& entry, const std::string& release,
                                           bool dkms);

/// Release and patch of the modules that p2pd installed here; nullopt: it installed none.
struct InstalledBuild {
  std::string release;  ///< empty: an older p2pd did not note it
  std::string commit;
};
std::optional<InstalledBuild> installed_build(const Host& host);

/// Renames a file of another origin so that depmod ignores it; Error if it has an owner. clear_modules() restores
/// its name.
Result<void> put_aside(Host& host, std::string_view release, const std::string& file);

/// Removes every module, DKMS package and source of p2pd, of any version and kernel, and restores files that were moved
/// aside; runs depmod if modules.dep is wrong then. Needs no dkms, no network; can be run again.
Result<void> clear_modules(Host& host);

/// Keeps what undo_modules() needs; must be called before the present change does anything else.
Result<void> keep_modules(Host& host);

/// Checks that undo_modules() can restore what p2pd had installed before the present change.
Result<void> prepare_undo_modules(const Host& host);

/// Runs clear_modules() for the undo of a change, and restores what p2pd had installed before that change.
Result<void> undo_modules(Host& host);

}  // namespace p2pd
